"""Policies by name, with the options that the configuration gives them.

A policy's options stand in a table of its own, `[stage.NAME]`, named and typed as its `Options` are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from asad.admit import AdmitPolicy
from asad.admit.budget import read_share
from asad.admit.everyone import Everyone
from asad.admit.hints import Rule
from asad.admit.live import Admission
from asad.admit.options import Options as AdmitOptions
from asad.admit.schemes import rehearse as rehearse_scheme
from asad.admit.schemes import scheme_maker, scheme_options
from asad.admit.sow import MECHANISMS, mechanism_of, mechanism_options
from asad.admit.sow.live import Statements
from asad.admit.sow.options import Options as StatementOptions
from asad.admit.sow.rehearsal import rehearse as rehearse_mechanism
from asad.admit.utility import parse_utility, site_utilities
from asad.bounded import MOST_NUMBER
from asad.config import Config
from asad.defer import DeferPolicy
from asad.defer.at_once import AtOnce
from asad.defer.live import Deferral
from asad.defer.options import Options as DeferOptions
from asad.defer.packing import PACKINGS
from asad.defer.rehearsal import rehearse as rehearse_scorer
from asad.defer.scorers import make_scorer, scorer_options
from asad.defer.windows import MOST_WINDOW_S
from asad.defer.windows import Rule as DeferRule
from asad.errors import ConfigError, UsageError
from asad.experts import Expert, load_experts
from asad.experts.tree import nearest
from asad.place import PlacePolicy
from asad.place.first_fit import FirstFit
from asad.place.first_fit import Options as FirstFitOptions
from asad.place.live import OgaOptions, PortPlacing
from asad.place.live import Options as PortOptions
from asad.place.native import Native
from asad.replay.contention import load_contention
from asad.share import SharePolicy
from asad.share.asax import Asax
from asad.share.asax_paper import AsaxPaper
from asad.share.exclusive import Exclusive
from asad.share.limits import extensions
from asad.share.measured import Measured
from asad.share.pool import Options
from asad.share.rehearsal import rehearse as rehearse_policy
from asad.share.static import Static


class StaticOptions(NamedTuple):
    """Options of `static`."""

    share: float = 0.5


_PAIRS = "it went with the search for pairs: hosts lend to the pools of their nodes now; remove the line"
REMOVED: dict[str, dict[str, str]] = {
    "[share.asax]": dict.fromkeys(
        (
            "look_ahead",
            "scenarios",
            "restarts",
            "most_stretch",
            "stretch_weight",
            "makespan_weight",
            "burst",
            "least_gain_s",
            "well_known",
            "tries",
            "least_happiness",
            "overhead",
            "full_rate",
            "pessimism",
            "outlast",
            "most_losers",
            "free_losers",
            "bold_slack",
            "bold_pessimism",
        ),
        _PAIRS,
    )
}
"""Options of earlier versions, by table and name, and why they are gone and what to do."""


def share_policy(config: Config, applications: Sequence[str], seed: int | None = None) -> SharePolicy:
    """The share policy that the configuration names, with its options; `seed` None draws one.

    Raises ConfigError for an unknown or wrong option, or experts that cannot be read.
    """
    name = config.policies.share
    given = config.share.get(name, {})
    rng = np.random.default_rng(None if seed is None else np.random.SeedSequence((seed, 0xA5)))
    if name in ("asax", "measured"):
        options = _options(name, given, Options(headroom=config.guard.host_floor))
        options = options._replace(poll_s=config.daemon.interval_s)
        if name == "measured":
            return Measured(applications, options)
        return Asax(_experts(config), applications, rng, options)
    if name == "static":
        share = _options(name, given, StaticOptions()).share
        if not 0 < share <= 1:
            raise ConfigError(f"[share.static] share = {share:g}; give a share above 0 and at most 1")
        return Static(share)
    if given:
        raise ConfigError(f"[share.{name}]: {name} has no options; remove the table")
    if name == "asax-paper":
        return AsaxPaper(_experts(config), applications, rng)
    return Exclusive()


def _experts(config: Config) -> tuple[Expert, ...]:
    return load_experts(config.policies.experts or None)


_Options = TypeVar("_Options", Options, StaticOptions)


def _options(policy: str, given: Mapping[str, Any], defaults: _Options) -> _Options:
    """The options as given, by name and of the type of their default."""
    return defaults._replace(**_checked(f"[share.{policy}]", given, defaults._asdict()))


def _checked(table: str, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """What is given, of the types of the defaults. Raises ConfigError for an unknown or wrong option."""
    taken: dict[str, Any] = {}
    for key, value in given.items():
        place = f"{table} {key[:80]}"
        if key in REMOVED.get(table, ()):
            raise ConfigError(f"{place}: {REMOVED[table][key]}")
        if key not in defaults:
            raise ConfigError(
                f"{place}: unknown option; {nearest(key, defaults)}there are {', '.join(defaults)}"
            )
        wanted = type(defaults[key])
        if wanted is bool:
            fits = isinstance(value, bool)
        elif wanted is str:
            fits = isinstance(value, str) and value.isprintable()
        elif wanted is tuple:
            fits = isinstance(value, list) and all(isinstance(item, str) and item for item in value)
        else:
            fits = isinstance(value, int if wanted is int else int | float) and not isinstance(value, bool)
            fits = fits and 0 <= value <= MOST_NUMBER
        if not fits:
            kind = {
                bool: "true or false",
                str: "a text",
                tuple: 'a list of names, ["n1", "n2"]',
                int: "a whole number from 0",
                float: "a number from 0",
            }[wanted]
            raise ConfigError(f"{place} = {value!r:.80}; give {kind}")
        taken[key] = wanted(value)
    return taken


def admit_policy(config: Config, applications: Sequence[str]) -> AdmitPolicy:
    """The admit policy that the configuration names, with its options and rules.

    Raises ConfigError for an unknown or wrong option, or a rule whose utility cannot be read.
    """
    name = config.policies.admit
    own = site_utilities()
    rules = [_rule(number, given, own) for number, given in enumerate(config.admit.get("rules", ()), 1)]
    given = config.admit.get(name, {})
    if name == "everyone":
        if given:
            raise ConfigError("[admit.everyone]: everyone has no options; remove the table")
        return Everyone()
    if name in MECHANISMS:
        return _statements(config, applications, name, given)
    table, plain, of_scheme = f"[admit.{name}]", AdmitOptions()._asdict(), scheme_options(name)
    taken = _checked(table, given, plain | of_scheme)
    options = AdmitOptions(**plain | {key: value for key, value in taken.items() if key in plain})
    if not 1.0 <= options.slot_s <= 604_800.0:
        raise ConfigError(f"{table} slot_s = {options.slot_s:g}; give from 1 to 604800 seconds")
    if not 2 <= options.horizon <= 10_000:
        raise ConfigError(f"{table} horizon = {options.horizon}; give from 2 to 10000 slots")
    if not 0.0 <= options.server_share < 1.0:
        raise ConfigError(f"{table} server_share = {options.server_share:g}; give from 0 to below 1")
    if not 0.0 <= options.ps_patience_s < math.inf:
        raise ConfigError(f"{table} ps_patience_s = {options.ps_patience_s:g}; give 0 or more seconds")
    try:
        for text in options.shares:
            read_share(text)
    except UsageError as error:
        raise ConfigError(f"{table} shares: {error}") from error
    make = scheme_maker(name, {key: value for key, value in taken.items() if key not in plain})
    return Admission(
        name,
        make,
        applications,
        options,
        rules,
        own_utilities=own,
        most_defer_s=config.guard.most_defer_s,
    )


DEFERRED_BY = {"osdec": "osdec"}
"""Under which a defer policy is told of in decisions, where that is not its name with `-defer`."""


def defer_policy(config: Config, applications: Sequence[str]) -> DeferPolicy:
    """The defer policy that the configuration names, with its options and rules.

    Raises ConfigError for an unknown or wrong option, and for weights that cannot be read.
    """
    name = config.policies.defer
    rules = [_defer_rule(number, given) for number, given in enumerate(config.defer.get("rules", ()), 1)]
    given, table = config.defer.get(name, {}), f"[defer.{name}]"
    if name == "at-once":
        if given:
            raise ConfigError(f"{table}: at-once has no options; remove the table")
        return AtOnce()
    plain, of_policy = DeferOptions()._asdict(), scorer_options(name)
    taken = _checked(table, given, plain | of_policy)
    options = DeferOptions(**plain | {key: value for key, value in taken.items() if key in plain})
    _check_deferral(table, options)
    try:
        scorer = make_scorer(name, {key: value for key, value in taken.items() if key not in plain})
    except UsageError as error:
        raise ConfigError(f"{table} {error}") from error
    return Deferral(
        deferred_by(name),
        scorer,
        applications,
        options,
        rules,
        poll_s=config.daemon.interval_s,
        most_lease_s=min(config.guard.most_lease_s, config.guard.most_defer_s),
    )


def deferred_by(name: str) -> str:
    """How decisions and replays call a defer policy: some names are those of other stages' policies too."""
    return DEFERRED_BY.get(name, f"{name}-defer")


def _check_deferral(table: str, options: DeferOptions) -> None:
    """Raises ConfigError for an option that is out of its range."""
    day_s = 86_400.0
    steps = day_s / options.step_s if options.step_s > 0 else 0.0
    if not (60.0 <= options.step_s <= day_s and abs(steps - round(steps)) < 1e-9):
        raise ConfigError(
            f"{table} step_s = {options.step_s:g}; give seconds of which a day has a whole number, from 60"
        )
    if options.packing not in PACKINGS:
        raise ConfigError(f"{table} packing = {options.packing!r:.80}; give {' or '.join(PACKINGS)}")
    for key, most in (("reserve", 0.99), ("quantile", 1.0)):
        if not 0.0 <= getattr(options, key) <= most:
            raise ConfigError(f"{table} {key} = {getattr(options, key):g}; give from 0 to {most:g}")
    if options.days > 366:
        raise ConfigError(f"{table} days = {options.days}; give from 0 to 366")
    if not 300.0 <= options.horizon_s <= 31 * day_s:
        raise ConfigError(f"{table} horizon_s = {options.horizon_s:g}; give from 300 seconds to 31 days")
    if not options.patience_s > 0:
        raise ConfigError(f"{table} patience_s = {options.patience_s:g}; give seconds above 0")


def _defer_rule(number: int, given: Mapping[str, Any]) -> DeferRule:
    """One of `[[defer.rules]]`. Raises ConfigError."""
    table = f"[[defer.rules]] number {number}:"
    rule = DeferRule(**_checked(table, given, DeferRule()._asdict()))
    if not 0.0 < rule.window_s <= MOST_WINDOW_S:
        raise ConfigError(f"{table} window_s = {rule.window_s:g}; give seconds above 0, at most a year")
    return rule


def _statements(
    config: Config, applications: Sequence[str], name: str, given: Mapping[str, Any]
) -> Statements:
    """Statements of work by the mechanism of that name. Raises ConfigError for an unknown or wrong option."""
    table, plain = f"[admit.{name}]", StatementOptions()._asdict()
    of_mechanism = mechanism_options(name)
    signed = {"delta": given["delta"]} if _negative(given.get("delta")) and "delta" in of_mechanism else {}
    unsigned = {key: value for key, value in given.items() if key not in signed}
    taken = _checked(table, unsigned, plain | of_mechanism) | signed
    options = StatementOptions(**plain | {key: value for key, value in taken.items() if key in plain})
    try:
        options.check()
        rest = {key: value for key, value in taken.items() if key not in plain}
        rehearse_mechanism(name, rest, dry=True)
    except UsageError as error:
        raise ConfigError(f"{table}: {error}") from error
    return Statements(
        name,
        lambda bounds: mechanism_of(name, bounds, rest),
        applications,
        options,
        most_defer_s=config.guard.most_defer_s,
    )


def _negative(value: Any) -> bool:
    """Supply beyond the capacity is a negative part that is kept back."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -10.0 <= value < 0


def place_policy(config: Config, applications: Sequence[str]) -> PlacePolicy:
    """The place policy that the configuration names, with its options.

    Raises ConfigError for an unknown or wrong option, and for two stages that would both lend.
    """
    name, share = config.policies.place, config.policies.share
    given, table = config.place.get(name, {}), f"[place.{name}]"
    poll_s, pressure = config.daemon.interval_s, config.guard.pressure
    if "capped" in given:
        raise ConfigError(f"{table} capped: quotas bind guests alone, never their hosts; remove the line")
    if name == "native":
        if given:
            raise ConfigError(f"{table}: native has no options; remove the table")
        return Native()
    if name == "first-fit":
        plain = FirstFitOptions(headroom=config.guard.host_floor)._asdict()
        options = FirstFitOptions(**plain | _checked(table, given, plain))
        lends = share == "exclusive"
        return FirstFit(
            options, applications, lends=lends, extend=extensions, poll_s=poll_s, pressure=pressure
        )
    if share != "exclusive":
        raise ConfigError(
            f'[policies] place = "{name}": it lends by itself, and so does share = "{share}"; '
            'write share = "exclusive"'
        )
    plain = PortOptions(headroom=config.guard.host_floor)._asdict()
    learning = OgaOptions()._asdict() if name == "oga" else {}
    taken = _checked(table, given, plain | learning)
    return PortPlacing(
        name,
        applications,
        PortOptions(**plain | {key: value for key, value in taken.items() if key in plain}),
        OgaOptions(**learning | {key: value for key, value in taken.items() if key in learning}),
        extend=extensions,
        poll_s=poll_s,
        pressure=pressure,
    )


def _rule(number: int, given: Mapping[str, Any], own: Mapping[str, Any]) -> Rule:
    """One of `[[admit.rules]]`. Raises ConfigError."""
    table = f"[[admit.rules]] number {number}:"
    rule = Rule(**_checked(table, given, Rule()._asdict()))
    if not rule.utility:
        raise ConfigError(f'{table} no utility; write utility = "sigmoid(10, 0.5, 20m)"')
    try:
        parse_utility(rule.utility, AdmitOptions().slot_s, own)
    except UsageError as error:
        raise ConfigError(f"{table} {error}") from error
    return rule


def memory_loss(config: Config) -> float:
    """What a memory-bound host loses beside a memory-bound guest, as calibrated. Raises ConfigError."""
    path = config.guard.calibration
    return 1.0 - load_contention(Path(path) if path else None).mu_host_memory


def rehearse(config: Config) -> None:
    """Have the policies that the configuration names compiled, into numba's cache where there is one."""
    made_up = ["made/up/1"]
    rehearse_policy(share_policy(config, made_up, 0))
    rehearse_policy(place_policy(config, made_up))
    admit = admit_policy(config, made_up)
    if isinstance(admit, Admission):
        rehearse_scheme(admit.make)
    if isinstance(admit, Statements):
        rehearse_mechanism(admit.name)
    defer = defer_policy(config, made_up)
    if isinstance(defer, Deferral):
        rehearse_scorer(defer.scorer)
