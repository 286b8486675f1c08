"""The retention check: whether brokers deleted expired files, whether they do it in quiet hours, and which
groups are about to lose unread messages.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from sqlalchemy import Connection

from sparrowmq.coordinator.alarms.table import AlarmCheck, Condition
from sparrowmq.coordinator.cluster.survey import SurveyView
from sparrowmq.coordinator.records import findings
from sparrowmq.coordinator.records.findings import Finding
from sparrowmq.coordinator.services.base.runner import Work
from sparrowmq.coordinator.services.base.schedule import RunReport, ServiceKind, ServiceOption
from sparrowmq.coordinator.services.base.watch import WatchService, need, policy_of, report
from sparrowmq.coordinator.services.brokers import history
from sparrowmq.coordinator.upkeep.cleaning import Cut, next_cut, overdue, quiet_faults
from sparrowmq.coordinator.upkeep.landscape import Loss
from sparrowmq.coordinator.upkeep.logs import HOUR_MS, DiskSurvey, LogSample, complete, local_hour

LOSS: Final = "retention-loss"
OVERDUE: Final = "retention-overdue"
QUIET: Final = "retention-quiet"
KIND: Final = ServiceKind(
    "retention",
    "What brokers deleted, and which groups are about to lose unread messages",
    600_000,
    60_000,
    120.0,
    (
        ServiceOption("ahead_hours", 24, 1, 24, "how long before deletion unread messages fire the alarm"),
        ServiceOption(
            "quiet_from", 0, 0, 23, "hour when the quiet hours begin; brokers should not delete files in them"
        ),
        ServiceOption("quiet_to", 0, 0, 23, "hour when the quiet hours end; the same hour: no quiet hours"),
        ServiceOption("checks", 1, 1, 100, "consecutive checks that must see it before it fires"),
        ServiceOption(
            "reminder_seconds", 14_400, 0, 604_800, "how often a firing alarm is repeated; 0: never"
        ),
    ),
)
HourOf = Callable[[int], int]


def cuts(
    sight: DiskSurvey,
    kept: Mapping[str, Sequence[LogSample]],
    ahead_hours: int,
    hour_of: HourOf = local_hour,
) -> dict[str, Cut]:
    """What masters will delete next and soon, by name; slaves have the same data. Pure."""
    masters = (log for log in sight.logs if "#" not in log.name)
    found = {
        log.name: (log, next_cut(log, complete(log, kept.get(log.name, ())), hour_of)) for log in masters
    }
    return {
        name: cut
        for name, (log, cut) in found.items()
        if cut is not None and cut.at <= log.now.at + ahead_hours * HOUR_MS
    }


def overdue_conditions(
    sight: DiskSurvey, kept: Mapping[str, Sequence[LogSample]], hour_of: HourOf = local_hour
) -> list[Condition]:
    """The brokers that have not deleted expired files. Pure."""
    conditions = []
    for log in sight.logs:
        late = overdue(log, complete(log, kept.get(log.name, ())), hour_of)
        if late is not None:
            rules = log.rules
            hours = ";".join(f"{hour:02d}" for hour in sorted(rules.delete_hours))
            conditions.append(
                Condition(
                    log.name,
                    f"{log.name} keeps {late.bytes} bytes of log that expired "
                    f"{(log.now.at - late.expired_at) // HOUR_MS} hours ago and should have been deleted "
                    f"(fileReservedTime={rules.reserved_hours}, deleteWhen={hours}); check its disk and "
                    f"its log file",
                )
            )
    return conditions


def quiet_conditions(
    sight: DiskSurvey,
    kept: Mapping[str, Sequence[LogSample]],
    quiet: tuple[int, int],
    hour_of: HourOf = local_hour,
) -> list[Condition]:
    """The brokers that delete files in quiet hours, or are configured to. Pure."""
    conditions = []
    for log in sight.logs:
        faults = quiet_faults(log, complete(log, kept.get(log.name, ())), quiet, hour_of)
        if faults:
            conditions.append(Condition(log.name, f"{log.name}: {'; '.join(faults)}"))
    return conditions


def losses(found: Sequence[Loss], cut_of: Mapping[str, Cut], now: int) -> list[Finding]:
    """Groups that will lose unread messages, by group and topic, with the first deletion that affects them.
    Pure.
    """
    by_pair: defaultdict[tuple[str, str], list[Loss]] = defaultdict(list)
    for loss in found:
        if loss.broker in cut_of:
            by_pair[loss.group, loss.topic].append(loss)
    findings_ = []
    for (group, topic), parts in sorted(by_pair.items()):
        count = sum(part.messages for part in parts)
        at = min(cut_of[part.broker].at for part in parts)
        brokers = sorted(part.broker for part in parts)
        hours = max(0, at - now) // HOUR_MS
        when = f"in {hours} hours" if hours else "within the hour"
        text = (
            f"the group {group} is about to lose {count} unread messages of the topic {topic} {when}, when "
            f"{', '.join(brokers)} cleans"
        )
        numbers = {"messages": count, "at_ms": at, "brokers": brokers}
        findings_.append(Finding(LOSS, f"{group} {topic}", text, group, topic, numbers))
    return findings_


class Retention(WatchService[SurveyView]):
    """Queries all brokers' logs and groups, and updates the alarms."""

    kind = KIND

    async def step(self, work: Work) -> RunReport:
        """One check. Raises `CoordinatorError` when no broker could be queried."""
        sight = await self._view.disks()
        need("broker", sight.logs, sight.failed)
        options, kept = work.options, await work.read(history.read)
        cut_of = cuts(sight, kept, options["ahead_hours"])
        lost, unread = await self._view.losses({name: cut.before_ms for name, cut in cut_of.items()})
        now = max((log.now.at for log in sight.logs), default=0)
        found = losses(lost, cut_of, now)
        policy, blind = policy_of(options), bool(sight.failed)
        late = overdue_conditions(sight, kept)
        quiet = quiet_conditions(sight, kept, (options["quiet_from"], options["quiet_to"]))
        told = tuple(Condition(one.key, one.text, one.group, one.topic) for one in found)
        all_ = (
            AlarmCheck(LOSS, policy, told, unread, partial=blind),
            AlarmCheck(OVERDUE, policy, tuple(late), partial=blind),
            AlarmCheck(QUIET, policy, tuple(quiet), partial=blind),
        )

        def keep(connection: Connection) -> dict[str, int]:
            findings.replace(connection, KIND.name, found, unknown=unread, partial=blind)
            return self._observe(connection, work, all_)

        counts = {"messages": sum(loss.messages for loss in lost)} | await work.write(keep)
        return report("brokers", sight.logs, {**sight.failed, **unread}, counts)
