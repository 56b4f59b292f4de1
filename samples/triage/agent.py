"""Triage of one support message: what it is about, how urgent, what it asks, and who should have it.

No model and no network. `TRIAGE_SECONDS` is how long a document is thought about, as a model would.
"""

from __future__ import annotations

import calendar
import os
import re
import time
from datetime import date
from typing import Any

from agentrun import Fail, Item

# What a term says about its category. Terms match whole words; a trailing * matches any ending.
TERMS: dict[str, dict[str, int]] = {
    "billing": {"credit note": 4, "invoice*": 3, "charged": 3, "refund*": 3, "vat": 3, "payment*": 2},
    "outage": {"outage": 4, "unreachable": 4, "503": 4, "timeout*": 3, "error page": 3, "down": 2},
    "login": {"two-factor": 4, "reset link": 4, "password": 3, "log in": 3, "locked": 3, "account": 1},
    "feature": {"roadmap": 4, "feature": 3, "would be great": 3, "suggestion": 3, "please add": 3, "wish": 2},
    "shipping": {"parcel": 3, "delivery": 3, "tracking": 3, "courier": 3, "arrived": 2, "damaged": 2},
    "privacy": {"personal data": 5, "data protection": 5, "gdpr": 4, "erase*": 3, "consent": 3},
    "praise": {"delighted": 4, "keep it up": 4, "thank you for": 3, "wonderful": 3, "compliment*": 3},
    "spam": {"backlinks": 5, "winner": 4, "crypto": 4, "limited offer": 4, "guaranteed": 3, "rank": 2},
}
QUEUES = {
    "billing": "accounts",
    "outage": "on-call",
    "login": "identity",
    "feature": "product",
    "shipping": "logistics",
    "privacy": "data-protection",
    "praise": "customer-care",
    "spam": "discard",
    "other": "customer-care",
}
REPLY_WITHIN_HOURS = {"critical": 1, "high": 4, "normal": 24, "low": 72}
GREETINGS = {
    "en": "hello|hi|dear|good (?:morning|afternoon)",
    "de": "guten tag|hallo|moin|sehr geehrte",
    "fr": "bonjour|salut|madame, monsieur",
    "es": "hola|buen[ao]s (?:dias|tardes)",
    "it": "buongiorno|salve|gentile",
    "nl": "goedemorgen|goedendag|beste",
}
PRESSING = ("urgent", "immediately", "as soon as possible", "unacceptable", "right now", "deadline", "lawyer")
CALM = ("no hurry", "whenever you have time", "not urgent", "no rush")
MONTHS = list(calendar.month_name)[1:]
CURRENCIES = {"€": "EUR", "$": "USD", "£": "GBP"}

ORDER = re.compile(r"\b[A-Z]{2}-\d{6}\b")
DATE = re.compile(rf"\b(?:(\d{{4}})-(\d\d)-(\d\d)|(\d\d)\.(\d\d)\.(\d{{4}})|(\d\d?) ({'|'.join(MONTHS)}) (\d{{4}}))\b")
AMOUNT = re.compile(r"([€$£]) ?(\d[\d,]*\.\d\d)|\b(\d[\d.]*,\d\d) (EUR|USD|GBP)\b")
SENTENCE = re.compile(r"(?<=[.!?])\s+")


def triage(item: Item) -> dict[str, Any]:
    time.sleep(float(os.environ.get("TRIAGE_SECONDS", "0.12")))
    head, _, body = item.text.partition("\n\n")
    fields = dict(line.split(": ", 1) for line in head.splitlines() if ": " in line)
    if "Received" not in fields or not body.strip():
        raise Fail("not a message: it needs a Received line, an empty line, and a text")
    received, _, channel = fields["Received"].partition(" by ")
    subject = fields.get("Subject", "")
    sentences = sentences_of(body)
    text = " ".join(sentences)

    scores = score_categories(f"{subject}. {subject}. {text}")  # a subject counts twice
    category = max(scores, key=lambda name: scores[name]) if scores else "other"
    dates = find_dates(text)
    urgency, reasons = judge_urgency(text, category, date.fromisoformat(received[:10]), dates)
    questions = [sentence for sentence in sentences if sentence.endswith("?")]
    return {
        "subject": subject,
        "category": category,
        "confidence": round(scores[category] / sum(scores.values()), 2) if scores else 0.0,
        "also": [name for name in scores if name != category and 2 * scores[name] >= scores[category]],
        "urgency": urgency,
        "reasons": reasons,
        "language": greeting_language(body),
        "orders": sorted(set(ORDER.findall(f"{subject} {text}"))),
        "dates": [day.isoformat() for day in dates],
        "amounts": find_amounts(text),
        "questions": questions,
        "summary": summarise(sentences, category),
        "route": {
            "queue": QUEUES[category],
            "reply_within_hours": None if category == "spam" else REPLY_WITHIN_HOURS[urgency],
            "reply": draft_reply(category, len(questions), channel or "mail"),
        },
    }


def score_categories(text: str) -> dict[str, int]:
    """The categories of which a term occurs, with the sum of its weights."""
    scores = {
        category: sum(weight * count_term(term, text) for term, weight in terms.items())
        for category, terms in TERMS.items()
    }
    return {category: score for category, score in scores.items() if score}


def count_term(term: str, text: str) -> int:
    pattern = re.escape(term.removesuffix("*")) + (r"\w*" if term.endswith("*") else "")
    return len(re.findall(rf"\b{pattern}\b", text, re.IGNORECASE))


def find_dates(text: str) -> list[date]:
    """Every date that exists, once, in order: 2025-03-14, 14.03.2025 and 14 March 2025 alike."""
    found = set()
    for match in DATE.finditer(text):
        y1, m1, d1, d2, m2, y2, d3, month, y3 = match.groups()
        number = MONTHS.index(month) + 1 if month else int(m1 or m2)
        try:
            found.add(date(int(y1 or y2 or y3), number, int(d1 or d2 or d3)))
        except ValueError:
            continue  # the 31st of February
    return sorted(found)


def find_amounts(text: str) -> list[dict[str, str]]:
    amounts = []
    for sign, english, continental, code in AMOUNT.findall(text):
        value = english.replace(",", "") if sign else continental.replace(".", "").replace(",", ".")
        amounts.append({"currency": CURRENCIES.get(sign, code), "value": value})
    return amounts


def judge_urgency(text: str, category: str, received: date, dates: list[date]) -> tuple[str, list[str]]:
    """How urgent, and why: deadlines, tone, and what the message is about."""
    points, reasons = 0, []
    low = text.lower()
    days_left = min(((day - received).days for day in dates if day >= received), default=None)
    if days_left is not None and days_left <= 7:
        points += 3 if days_left <= 2 else 1
        reasons.append(f"days to a date it names: {days_left}")
    for phrase in CALM:
        if phrase in low:
            points -= 2
            reasons.append(f'says "{phrase}"')
            low = low.replace(phrase, "")  # "not urgent" is not "urgent"
    for phrase in PRESSING:
        if phrase in low:
            points += 1
            reasons.append(f'says "{phrase}"')
    if text.count("!") >= 3 or re.search(r"\b[A-Z]{4,}(?: [A-Z]{2,})+\b", text):
        points += 1
        reasons.append("loud")
    if category in ("outage", "privacy"):
        points += 3 if category == "outage" else 1
        reasons.append(f"is about {category}")
    if category in ("praise", "spam") or points < 0:
        return "low", reasons
    return "critical" if points >= 5 else "high" if points >= 3 else "normal", reasons


def greeting_language(body: str) -> str | None:
    first = body.split("\n", 1)[0].lower()
    return next((code for code, words in GREETINGS.items() if re.match(rf"(?:{words})\b", first)), None)


def sentences_of(body: str) -> list[str]:
    """What is said between greeting and signature. A line break is a space, so that no date is cut in two."""
    paragraphs = body.strip().split("\n\n")
    if len(paragraphs) > 1 and not paragraphs[-1].endswith((".", "!", "?")):
        paragraphs.pop()
    greeting, _, rest = paragraphs[0].partition("\n")
    if greeting.endswith(","):
        paragraphs[0] = rest
    return [sentence for sentence in SENTENCE.split(" ".join(" ".join(paragraphs).split())) if sentence]


def summarise(sentences: list[str], category: str) -> str:
    """The sentence that says most: terms of the category, facts, few words, early in the text."""

    def score(position: int, sentence: str) -> float:
        words = len(sentence.split())
        terms = sum(w * count_term(term, sentence) for term, w in TERMS.get(category, {}).items())
        facts = len(ORDER.findall(sentence)) + len(DATE.findall(sentence)) + len(AMOUNT.findall(sentence))
        return terms + 1.5 * facts - 0.5 * position - abs(words - 16) / 8

    ranked = sorted((-score(position, sentence), position) for position, sentence in enumerate(sentences))
    return sentences[ranked[0][1]] if ranked else ""


def draft_reply(category: str, questions: int, channel: str) -> str:
    if category == "spam":
        return "No reply."
    asked = {0: "Acknowledge", 1: "Answer the question"}.get(questions, f"Answer the {questions} questions")
    return f"{asked} by {channel}; sign as {QUEUES[category]}."
