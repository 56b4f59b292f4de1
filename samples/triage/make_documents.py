"""Writes documents/0001.txt … 0200.txt, the same ones every time. Nobody and nothing in them is real.

python make_documents.py
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import fill

COUNT = 200
SEED = 20250303

# Each topic: how common it is, then what people write: matters (with a subject), details, questions.
TOPICS: dict[str, tuple[int, list[tuple[str, str]], list[str], list[str]]] = {
    "billing": (
        5,
        [
            ("Charged twice", "My card was charged {amount} twice for order {order} on {past}."),
            ("Invoice for {order}", "The invoice for {order} shows {amount}, but the offer said {amount2}."),
            (
                "Refund still missing",
                "You promised a refund of {amount} on {past} and nothing has come back to my account.",
            ),
            (
                "VAT number on the invoice",
                "Our accounting needs a corrected invoice for {order}: the VAT number is missing.",
            ),
            (
                "Cancelled, and charged",
                "I cancelled the yearly plan on {past}, and still a payment of {amount} went out.",
            ),
            (
                "Reminder for {order}",
                "We received a reminder for {amount}, although the payment for {order} was made on {past}.",
            ),
        ],
        [
            "The bank says the second payment came from you.",
            "I have the receipt and can send a copy.",
            "Our books for the quarter close on {soon}.",
            "The discount of {percent} percent was not applied.",
            "This is the third time that I write about it, which is unacceptable.",
            "A credit note would do as well.",
            "The amount on the statement is {amount2}, to be exact.",
        ],
        [
            "When will the refund reach my card?",
            "Can you send the corrected invoice by {soon}?",
            "Who in your payments team can I call?",
            "Is it possible to pay by bank transfer from now on?",
        ],
    ),
    "outage": (
        4,
        [
            ("Dashboard down", "The dashboard is down for all {number} of us since {clock}."),
            ("503 since this morning", "Every second request to the interface ends in a 503."),
            (
                "Everything is unreachable",
                "Since {clock} your service is unreachable from our office in {place}.",
            ),
            (
                "Timeout of the import",
                "The nightly import of {past} stopped with a timeout after {number} minutes.",
            ),
            ("Only an error page", "We see an error page instead of our orders, in every browser."),
        ],
        [
            "The status page says that all is well, which it is not.",
            "Our warehouse in {place} cannot print labels and is standing still.",
            "It came back for {number} minutes at noon and went down again.",
            "We have tried two networks and a telephone.",
            "NOTHING WORKS HERE and customers are waiting at the counter!",
            "The timeout is always after thirty seconds.",
            "We have a launch on {soon} and need this solved immediately.",
        ],
        [
            "Is this a known outage?",
            "When do you expect it to be up again?",
            "Were any of the orders of {past} lost?",
            "Can we have a report for our own customers?",
        ],
    ),
    "login": (
        4,
        [
            ("Cannot log in", "I cannot log in since I changed my telephone on {past}."),
            ("Locked out", "My account is locked after {number} attempts that were not mine."),
            (
                "Password reset does not work",
                "The reset link that you mail me has expired each time I open it.",
            ),
            (
                "Two-factor code comes too late",
                "The two-factor code comes {number} minutes late and is refused.",
            ),
            (
                "Shared account",
                "A colleague has left us and nobody knows the password of the shared account.",
            ),
        ],
        [
            "I have cleared the browser and tried a private window.",
            "The sign-in page goes round in a circle and asks for the password again.",
            "I need the papers for {order} before {soon}.",
            "The backup codes are in a drawer in {place}, and I am not.",
            "No hurry, I can use the shared computer until then.",
            "My user name is desk{number}@example.com.",
        ],
        [
            "Can you unlock it today?",
            "How do I move two-factor to a new telephone?",
            "Can you tell me from where somebody tried to log in?",
            "Is there a way to sign in without a telephone?",
        ],
    ),
    "feature": (
        3,
        [
            (
                "Feature request: filter by {thing}",
                "It would be great if the list of orders could be filtered by {thing}.",
            ),
            ("Dark colours", "My wish for the next version is a dark colour scheme."),
            (
                "Feature request: {thing} export",
                "Please add a way to export the {thing} table as a spreadsheet.",
            ),
            (
                "Is this on the roadmap?",
                "We miss a feature that tells us when the {thing} is in stock again.",
            ),
            ("A suggestion", "A suggestion from {place}: let us pin the orders we look at daily."),
        ],
        [
            "We do it by hand now, for {number} rows a week.",
            "The old version had it until {past}, and people here ask for it.",
            "It need not be pretty.",
            "Not urgent, but it would save us an hour every Friday.",
            "We would gladly test an early version of the feature.",
            "Other tools have had it for years.",
        ],
        [
            "Is that on your roadmap?",
            "Would a paid plan include it?",
            "Is there an interface with which we could build it ourselves?",
        ],
    ),
    "shipping": (
        5,
        [
            ("Where is {order}?", "The {thing} of order {order} should have arrived on {past}."),
            ("Parcel damaged", "The parcel for {order} came open and the {thing} is damaged."),
            ("Tracking of {order}", "Tracking for {order} has shown the same line for {number} days."),
            (
                "Delivery in {place}",
                "The courier left our delivery with a neighbour in {place} whom we do not know.",
            ),
            ("Missing {thing}", "I ordered {number} pieces with {order} and only one {thing} arrived."),
            (
                "Wrong address on {order}",
                "I gave the old address for {order}; please change it before the parcel leaves.",
            ),
        ],
        [
            "I was at home all day and no courier rang.",
            "It is a present for {soon}.",
            "I have photographs of the box and of the {thing}.",
            "The tracking page asks for a postcode and then shows nothing.",
            "The goods are worth {amount}, so I am a little nervous.",
            "There is no rush with the replacement.",
            "If it is not here by {soon} I will have to buy the {thing} elsewhere!",
        ],
        [
            "Where is my parcel now?",
            "Can the delivery go to {other_place} instead?",
            "Do I have to send the damaged {thing} back?",
            "Will the replacement be here before {soon}?",
        ],
    ),
    "privacy": (
        2,
        [
            (
                "Copy of my personal data",
                "I ask for a copy of all personal data that you hold on me, as of {past}.",
            ),
            (
                "Please erase my data",
                "Please erase the account desk{number}@example.org with all that belongs to it.",
            ),
            (
                "Consent withdrawn",
                "I withdraw my consent to the newsletter and to any profile made from my orders.",
            ),
            ("Data protection question", "Our data protection officer needs the list of processors you use."),
        ],
        [
            "The order concerned is {order}.",
            "The law gives you one month, which ends on {soon}.",
            "I have asked before, on {past}, without an answer.",
            "If need be our lawyer will write the next letter.",
            "An export in a common format is enough.",
        ],
        [
            "In which country is the data kept?",
            "Can you confirm by {soon} that it is done?",
            "Which processor sees our personal data?",
        ],
    ),
    "praise": (
        2,
        [
            ("Thank you", "Thank you for the quick help with {order}."),
            ("Lovely {thing}", "I am delighted with the {thing} that came on {past}."),
            ("A compliment", "A compliment to whoever packed {order}: not a scratch, and a friendly note."),
            (
                "Just to say thanks",
                "Your colleague on the telephone was wonderful and solved it in {number} minutes.",
            ),
        ],
        [
            "I have told everyone in {place}.",
            "It is rare that somebody listens so patiently.",
            "The {thing} looks even better than in the picture.",
            "Keep it up!",
            "We will order again in the autumn.",
        ],
        ["Would you pass this on to the team?", "Is there a place where I can leave a review?"],
    ),
    "spam": (
        2,
        [
            ("You are a WINNER", "You are the winner of a {thing} worth {amount}!!!"),
            ("Backlinks for your site", "We place {number}00 backlinks to your site, guaranteed."),
            ("Limited offer", "Limited offer: double your crypto by {soon}."),
            (
                "Rank first in {number} days",
                "Your shop does not rank where it should, and we can change that.",
            ),
        ],
        [
            "Click the button below to claim it.",
            "Guaranteed results or {percent} percent of the money back.",
            "Only {number} places are left, act RIGHT NOW!",
            "No card needed, just your telephone number.",
            "This limited offer is for you alone.",
        ],
        ["Are you ready?", "Shall I send the price list?"],
    ),
}
FOREIGN = ["Guten Tag,", "Hallo zusammen,", "Bonjour,", "Hola,", "Buongiorno,", "Goedemorgen,", "Moin,"]
GREETINGS = FOREIGN + 3 * ["Hello,", "Hi there,", "Dear team,", "Good morning,", "Dear support,"]
EXCUSES = ["Please excuse my English.", "I write in English so that everyone can read it."]
PRESSING = ["This is urgent.", "Please answer as soon as possible.", "I expect a call today!"]
CLOSINGS = ["Kind regards", "Thanks in advance", "With best wishes", "Cheers", "Waiting for your answer"]
SIGNATURES = ["the office in {place}", "customer {number}{number}", "desk {number}", "the shop in {place}"]
THINGS = ["desk lamp", "walnut shelf", "label printer", "kettle", "garden chair", "rucksack", "tea set"]
PLACES = ["Lisbon", "Graz", "Tartu", "Cork", "Ghent", "Bergen", "Turin", "Lyon", "Brno", "Malmö", "Porto"]


def main() -> None:
    rng = random.Random(SEED)
    folder = Path(__file__).parent / "documents"
    folder.mkdir(exist_ok=True)
    topics = rng.choices(list(TOPICS), weights=[topic[0] for topic in TOPICS.values()], k=COUNT)
    received = datetime(2025, 3, 3, 7, 2, tzinfo=UTC)
    for number, topic in enumerate(topics, start=1):
        received += timedelta(minutes=rng.randint(3, 240))
        (folder / f"{number:04}.txt").write_text(write_message(rng, topic, received), encoding="utf-8")


def write_message(rng: random.Random, topic: str, received: datetime) -> str:
    slots = make_slots(rng, received)
    _, matters, details, questions = TOPICS[topic]
    subject, matter = rng.choice(matters)
    story = [matter, *rng.sample(details, rng.randint(1, 4))]
    asked = rng.sample(questions, rng.choice([0, 1, 1, 1, 2]))
    if topic not in ("spam", "praise"):
        if rng.random() < 0.15:  # a second matter in the same message
            other = rng.choice([name for name in ("billing", "login", "shipping") if name != topic])
            asked += ["One more thing.", rng.choice(TOPICS[other][1])[1], rng.choice(TOPICS[other][3])]
        if rng.random() < 0.2:
            asked.append(rng.choice(PRESSING))
    channel = rng.choice(["mail", "mail", "mail", "web form", "chat"])
    greeting = rng.choice(GREETINGS)
    if greeting in FOREIGN and rng.random() < 0.5:
        story.insert(0, rng.choice(EXCUSES))
    lines = [
        f"Received: {received:%Y-%m-%d %H:%M} by {channel}",
        f"From: desk{rng.randint(10, 999)}@example.{rng.choice(['com', 'org'])}",
        f"Subject: {subject}",
        "",
    ]
    if channel != "chat":
        lines.append(greeting)
    lines.append(" ".join(story))
    if asked:
        lines += ["", " ".join(asked)]
    if channel != "chat":
        lines += ["", f"{rng.choice(CLOSINGS)}, {rng.choice(SIGNATURES)}"]
    return "\n".join(fill(line.format_map(slots), 100) for line in lines) + "\n"


def make_slots(rng: random.Random, received: datetime) -> dict[str, str]:
    style = rng.choice(["€{}", "${}", "£{}", "{} EUR"])

    def amount() -> str:
        english = f"{rng.randint(900, 240_000) / 100:,.2f}"
        return style.format(english if style != "{} EUR" else english.translate(str.maketrans(",.", ".,")))

    def day(offset: int) -> str:
        then = received + timedelta(days=offset)
        return rng.choice([f"{then:%Y-%m-%d}", f"{then:%d.%m.%Y}", f"{then.day} {then:%B %Y}"])

    place, other_place = rng.sample(PLACES, 2)
    return {
        "order": f"{rng.choice(['AB', 'KX', 'TR', 'ZN'])}-{rng.randint(100_000, 999_999)}",
        "amount": amount(),
        "amount2": amount(),
        "past": day(-rng.randint(1, 40)),
        "soon": day(rng.choice([0, 1, 2, 3, 5, 6, 9, 14, 21])),
        "clock": f"{rng.randint(6, 11)}:{rng.choice(['05', '20', '40', '55'])}",
        "number": str(rng.randint(3, 60)),
        "percent": str(rng.choice([5, 10, 15, 20, 50])),
        "thing": rng.choice(THINGS),
        "place": place,
        "other_place": other_place,
    }


if __name__ == "__main__":
    main()
