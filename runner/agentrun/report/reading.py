"""Making a report of a job, from its records and its log, in one pass over each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from shlex import quote

from agentrun.errors import CheckpointError, ItemsError, LaterError, UsageError
from agentrun.money.usage import format_cost, format_tokens
from agentrun.report.advice import Commands, advise, describe, judge
from agentrun.report.launches import launches_of
from agentrun.report.report import Advice, Group, LaunchFacts, Listed, Night, Pause, Report, Tile, Tone
from agentrun.report.tally import Tally
from agentrun.values.clock import now_seconds, seconds_of
from agentrun.values.text import clean, quoted
from agentrun.values.units import format_duration
from agentrun.views.causes import cause_shape, group_failures
from agentrun.views.finding import KnownJob
from agentrun.views.item import ItemView
from agentrun.views.jobs import JobView, view_job, view_run
from agentrun.views.listing import Listing, open_listing, open_run_listing
from agentrun.views.runs import check_records, find_run, list_runs

ITEMS_SHOWN, GROUPS_SHOWN, OUTLIERS_SHOWN = 50, 20, 5
_CAUSES_SHOWN, _VERSIONS_SHOWN = 3, 6


def read_report(known: KnownJob, *, run: str | None = None, here: Path | None = None) -> Report:
    """The report of the current run, or of the last one that ended; `run` names another. Takes no lock.

    `here` is where the commands of `known.shown` work. UsageError if the job has not run, or its records are gone.
    """
    runs = list_runs(known.store)
    asked = find_run(runs, run, known.shown) if run is not None else None
    is_earlier = asked is not None and asked.run_id != runs[0].run_id
    if is_earlier:
        assert asked is not None
        check_records(asked, known.shown)
        view = view_run(known.store, known.name, asked.run_id)
    else:
        view = view_job(known.store, known.name)
    if view.status in ("damaged", "unreachable"):
        raise CheckpointError(view.problem)
    if not view.run_id:
        raise UsageError(f"{known.name}: has not run yet, so there is nothing to report; start it first")
    number = next((one.number for one in runs if one.run_id == view.run_id), 0)
    tally, listing, note = _count(known, view, number, is_earlier=is_earlier)
    with listing:
        return _make(known, view, tally, listing, number, here=here, note=note, is_earlier=is_earlier)


def _count(known: KnownJob, view: JobView, number: int, *, is_earlier: bool) -> tuple[Tally, Listing, str]:
    """One pass over the records: their sums, and the items that they leave."""

    def begin() -> Tally:
        now = now_seconds() if view.status == "running" else 0.0
        return Tally(seconds_of(view.started_at), max(seconds_of(view.updated_at), now), number)

    tally = begin()
    if is_earlier:
        return tally, (listing := open_run_listing(known.store, view.run_id, note=tally.note)), listing.note
    try:
        listing = open_listing(known.store, known.job, note=tally.note)
        return tally, listing, listing.note
    except (ItemsError, LaterError) as error:
        tally = begin()
        return tally, open_listing(known.store, note=tally.note), f"{error.message}; only what is on record is shown"


def _make(
    known: KnownJob,
    view: JobView,
    tally: Tally,
    listing: Listing,
    number: int,
    *,
    here: Path | None,
    note: str,
    is_earlier: bool,
) -> Report:
    reference = (known.job.agent if known.job is not None else "") or view.reference
    commands = Commands(known.command_name or quote(known.name), reference)
    for one in view.running:
        if began := seconds_of(one.since):
            tally.fly(began, tally.ended)
    launches = launches_of(view, listing.reader.history(), tally.launches)
    groups = group_failures(listing.items({"failed"}))
    questions = list(_questions(listing.items({"waiting"})))
    advice = list(advise(view, commands))
    if is_earlier:
        advice = [
            Advice("This is an earlier run; its results can still be read", commands.of("results", f"--run {number}"))
        ]
    failures = [
        Group(
            text=one.example,
            count=one.count,
            items=[Listed(key) for key in one.keys[:ITEMS_SHOWN]],
            where=one.where,
            code=one.raised.code if one.raised is not None else "",
            command="" if is_earlier else commands.redo(one),
        )
        for one in groups[:GROUPS_SHOWN]
    ]
    verdict, tone = judge(view)
    return Report(
        view=view,
        made_at=now_seconds(),
        folder=_folder_shown(here or (known.job.base if known.job is not None else None)),
        verdict=verdict,
        tone=tone,
        words=describe(view),
        tiles=list(_tiles(view, len(groups), tally, launches)),
        advice=advice,
        failures=failures,
        failed=sum(one.count for one in groups),
        causes=len(groups),
        questions=sorted(questions, key=lambda one: -one.count)[:GROUPS_SHOWN],
        waiting=sum(one.count for one in questions),
        answer="" if is_earlier else commands.of("review"),
        night=_night(known, view, tally, launches),
        slowest=tally.slowest.first(OUTLIERS_SHOWN, listing.is_listed),
        most_expensive=tally.most_expensive.first(OUTLIERS_SHOWN, listing.is_listed),
        facts=list(_facts(known, view, tally, launches, number)),
        launches=launches,
        note=note,
    )


def _night(known: KnownJob, view: JobView, tally: Tally, launches: Iterable[LaunchFacts]) -> Night:
    crashes = [one.ended for one in launches if one.is_crash]
    flight = tally.curve_in_flight()
    return Night(
        began=tally.began,
        ended=tally.ended,
        settled=tally.curve_settled(),
        failed=tally.curve_failed(),
        in_flight=flight,
        cost=tally.curve_cost(view.cost, crashes) if view.cost is not None else None,
        idle=tally.idle(flight),
        crashes=crashes,
        seconds=sorted(tally.seconds),
        concurrency=known.job.concurrency if known.job is not None else None,
    )


def _tiles(view: JobView, causes: int, tally: Tally, launches: list[LaunchFacts]) -> Iterator[Tile]:
    counts = view.counts
    yield Tile("done", f"{counts.get('done', 0):,}", f"of {view.total:,}", "good")
    about: dict[str, tuple[str, Tone]] = {
        "failed": (f"from {causes:,} {'cause' if causes == 1 else 'causes'}", "bad"),
        "waiting": ("for an answer", "warn"),
        "skipped": ("on purpose", "dim"),
        "pending": ("to run", "dim"),
    }
    for kind, (note, tone) in about.items():
        if (count := counts.get(kind)) or kind in ("failed", "waiting"):
            yield Tile(
                "left" if kind == "pending" else kind, f"{count or 0:,}", note if count else "", tone if count else ""
            )
    if view.cost is not None:
        of = f"of {format_cost(view.budget)}" if view.budget is not None else ""
        yield Tile("cost", format_cost(view.cost), of)
    elif view.tokens:
        yield Tile("tokens", f"{view.tokens:,}", f"of {view.token_budget:,}" if view.token_budget else "")
    crashes = sum(one.is_crash for one in launches)
    died = f", {crashes:,} {'crash' if crashes == 1 else 'crashes'}" if crashes else ""
    many = f"{view.launches:,} {'launch' if view.launches == 1 else 'launches'}{died}"
    yield Tile("took", format_duration(tally.ended - tally.began), many)


def _questions(items: Iterable[ItemView]) -> Iterator[Group]:
    """Waiting items by the words of their questions: numbers and names may differ."""
    texts: dict[str, str] = {}
    found: dict[str, list[Listed]] = {}
    counts: dict[str, int] = {}
    for item in items:
        asked = item.question
        text = asked.text if asked is not None else ""
        shape = cause_shape(text)
        texts.setdefault(shape, text)
        counts[shape] = counts.get(shape, 0) + 1
        if counts[shape] <= ITEMS_SHOWN:
            details = asked.details if asked is not None else {}
            about = ", ".join(f"{name}: {_detail(value)}" for name, value in list(details.items())[:8])
            # Only what differs within the group.
            said = f"{text} " if text != texts[shape] else ""
            found.setdefault(shape, []).append(Listed(item.key, clean(f"{said}{about}".strip(), limit=160)))
    for shape, text in texts.items():
        yield Group(text, counts[shape], found[shape])


def _detail(value: object) -> str:
    return clean(value, limit=60) if isinstance(value, str) else quoted(value, limit=60)


def _facts(
    known: KnownJob, view: JobView, tally: Tally, launches: Iterable[LaunchFacts], number: int
) -> Iterator[tuple[str, str]]:
    again = (
        f"; {tally.retried:,} {'item' if tally.retried == 1 else 'items'} needed more than one" if tally.retried else ""
    )
    causes = ", ".join(
        f"{count:,} times {clean(text, limit=80)}" for text, count in tally.causes.most_common(_CAUSES_SHOWN)
    )
    yield "Attempts", f"{tally.attempts:,}{again}{f': {causes}' if causes else ''}"
    refused = f"{tally.refused:,}, each repeated without using up a retry" if tally.refused else "none"
    yield "Refusals", refused
    if pauses := [pause for one in launches for pause in one.pauses]:
        yield "Pauses", _paused(pauses)
    yield "Tokens", format_tokens(view.usage) if view.tokens else "none reported"
    yield "Lost in crashes", _lost(view)
    if view.versions:
        each = [f"{count:,} by version {clean(name, limit=40)}" for name, count in view.versions.items()]
        more = f", and {len(each) - _VERSIONS_SHOWN:,} more versions" if len(each) > _VERSIONS_SHOWN else ""
        yield "Agent", ", ".join(each[:_VERSIONS_SHOWN]) + more + (" (several versions)" if len(each) > 1 else "")
    if tally.kept:
        yield "Kept", f"{tally.kept:,} results of earlier runs"
    if output := _output(known, view):
        yield "Results", clean(output, limit=400)
    yield "Run", f"{number}, {view.run_id}" if number else view.run_id


def _paused(pauses: Sequence[Pause]) -> str:
    """How long it waited, and for what."""
    many = f"{len(pauses):,}, " if len(pauses) > 1 else ""
    reasons = list(dict.fromkeys(clean(one.reason, limit=80) for one in pauses))
    more = f", and {len(reasons) - _CAUSES_SHOWN:,} more reasons" if len(reasons) > _CAUSES_SHOWN else ""
    seconds = round(sum(one.seconds for one in pauses))
    return f"{many}{format_duration(seconds)} in all: {'; '.join(reasons[:_CAUSES_SHOWN])}{more}"


def _lost(view: JobView) -> str:
    """What was paid, or may have been paid, for attempts that left no result."""
    usage, words = view.usage, []
    if usage.lost:
        words.append(f"{format_cost(usage.lost)}, charged because it may have been spent")
    elif usage.may_be_lost:
        words.append(f"perhaps {format_cost(usage.may_be_lost)} more than the cost that was reported")
    elif tokens := usage.lost_tokens + usage.may_be_lost_tokens:
        words.append(f"perhaps {tokens:,.0f} tokens")
    if usage.unrecorded is not None and usage.unrecorded.cost:
        words.append(f"{format_cost(usage.unrecorded.cost)} spent by attempts that were cut off")
    return "; ".join(words) or "nothing"


def _output(known: KnownJob, view: JobView) -> str:
    """Where the results are, or those so far."""
    if view.output:
        return view.output
    if known.job is not None and view.date:
        partial = known.job.partial_path(run_id=view.run_id, date=view.date)
        if partial.exists():
            return f"{partial} (so far)"
    return ""


def _folder_shown(folder: Path | None) -> str:
    """A folder as people write it."""
    if folder is None:
        return ""
    try:
        return str(Path("~") / folder.relative_to(Path.home()))
    except (ValueError, RuntimeError):
        return str(folder)
