"""Autoscaling: the parallelism of a job from the number of unread records.

The lag has to stay beyond a limit for a whole period before the parallelism changes, and the lower
limit is below the upper one. A change begins a new period.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]
DECISIONS_MAX = 10


def autoscale(
    spec: Mapping[str, Any], former: Json, *, lag: int | None, now_s: float
) -> tuple[Json, int | None]:
    """Return the new state of the autoscaling, and the new parallelism or None.

    A lag above ``scaleUpLag`` doubles the parallelism; one below ``scaleDownLag`` reduces it by a
    quarter, because a wrong reduction costs more than a late one. ``lag`` is None while the job
    does not run or its lag is unknown.
    """
    policy, width, side = spec["autoscaling"], int(spec.get("parallelism") or 1), ""
    if lag is not None and not policy["scaleDownLag"] <= lag <= policy["scaleUpLag"]:
        side = "Up" if lag > policy["scaleUpLag"] else "Down"
    decisions = former.get("decisions", [])
    state = {"beyond": side, "since": now_s, "decisions": decisions}  # A patch would drop null.
    if not side or side != former.get("beyond"):
        return (state if side != former.get("beyond", "") else former), None
    wanted = max(width * 2 if side == "Up" else width * 3 // 4, policy["minParallelism"])
    wanted, period_s = min(wanted, policy["maxParallelism"]), policy[f"scale{side}Seconds"]
    if now_s - former["since"] < period_s or wanted == width:
        return former, None
    text = f"a lag of {lag} records, beyond scale{side}Lag for {period_s} s"
    entry = {"at": int(now_s), "from": width, "to": wanted, "reason": text}
    return state | {"decisions": [entry, *decisions][:DECISIONS_MAX]}, wanted
