"""Kernels that choose their own constants: `@argus.autotune(configs, key)` above `@argus.kernel`.

The first call for a class of sizes lowers every configuration, which takes a fraction of a second each. It drops those
that break a rule of the machine, and those that the performance model expects to be slow. The others are proved and
built in parallel, then timed on copies of the call's outputs. The fastest is stored on disk. Later calls are ordinary.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from argus.backend.cache import DiskCache, Entry, cache_key
from argus.backend.fingerprint import compiler
from argus.diagnostic import ArgusError, Diagnostic, LaunchError, Note, SourceError
from argus.environment import cache_directory
from argus.frontend.options import Options
from argus.runtime import JitKernel
from argus.runtime.executable import CachedSource
from argus.runtime.planner import Situation
from argus.tuning.bench import do_bench
from argus.tuning.build import Build, BuildRequest, build_all, in_a_process
from argus.tuning.config import Config
from argus.tuning.model import MODELS, estimate
from argus.tuning.progress import Progress, progress

SLOWER = 3.0
"""Configurations that the model expects to take this many times as long as the best one are not tried."""

_MOST_SEEN = 4096
"""Largest number of kinds of calls whose configuration is found without looking at sizes by name."""

Bench = Callable[[Callable[[], object], str], float]
"""`bench(call, device)` returns the time of a call in milliseconds."""


def _bench(call: Callable[[], object], device: str) -> float:
    return do_bench(call, device=device)


@dataclass(frozen=True, slots=True)
class Trial:
    """The outcome for a configuration: its time, or the reason why it has none. `predicted_us` is the model's time."""

    config: Config
    milliseconds: float | None
    reason: str = ""
    predicted_us: float | None = None

    def __str__(self) -> str:
        said = self.reason if self.milliseconds is None else f"{self.milliseconds * 1e3:.1f} us"
        return f"{self.config}: {said}"


class Autotuner:
    """A kernel with configurations. It is called like the kernel, without the constants that the configurations set.

    `key` names the sizes and scalar arguments that decide the choice. Integers are rounded up to powers of two, so that
    one measurement serves a class of sizes. `trials` holds, by class, the outcome for each configuration.
    """

    def __init__(
        self,
        kernel: JitKernel,
        configs: Sequence[Config],
        key: Sequence[str],
        *,
        bench: Bench = _bench,
        build: Build = in_a_process,
    ) -> None:
        self.__name__, self.__doc__ = kernel.__name__, kernel.__doc__
        assert isinstance(kernel.source, CachedSource)  # `@argus.kernel` makes kernels with this source.
        self.kernel, self._source = kernel, kernel.source
        self.configs, self.key = tuple(configs), tuple(key)
        self.trials: dict[str, tuple[Trial, ...]] = {}
        self._bench, self._build = bench, build
        self._chosen: dict[str, Config] = {}
        self._seen: dict[Hashable, Config] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Launch with the best configuration for these sizes; find it first if necessary.

        Raises LaunchError "no-configuration" if none can run, and the errors of the kernel's call.
        """
        key = (*map(_facts, args), repr(kwargs) if kwargs else "")
        config = self._seen.get(key)
        if config is None:
            config = self.best(*args, **kwargs)
            if len(self._seen) < _MOST_SEEN:
                self._seen[key] = config
        self.kernel(*args, **kwargs, **config.keywords)

    def best(self, *args: Any, **kwargs: Any) -> Config:
        """Return the configuration for a call like this one."""
        found = self._situation(args, kwargs)
        name = self._class(found, kwargs)
        if name not in self._chosen:
            kept = self._disk()
            where = self._entry_key(name)
            entry = kept.get(where)
            place = entry.data.get("config") if entry is not None and isinstance(entry.data, dict) else None
            if not isinstance(place, int) or not 0 <= place < len(self.configs):
                place = self._tune(name, found, args, kwargs)
                times = [t.milliseconds for t in self.trials[name]]
                kept.put(where, Entry({"config": place, "milliseconds": times}))
            self._chosen[name] = self.configs[place]
        return self._chosen[name]

    def _situation(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Situation:
        """Return the call's situation with the first configuration that raises no SourceError."""
        trials: list[Trial] = []
        for config in self.configs:
            both = next((name for name in config.keywords if name in kwargs), None)
            if both is not None:
                text = f"`{both}` is given by the call, and chosen by a configuration"
                raise LaunchError(_problem(text, "leave it out of one of them"))
            try:
                return self.kernel.situation(*args, **kwargs, **config.keywords)
            except SourceError as error:
                trials.append(Trial(config, None, error.diagnostics[0].message))
        raise self._none(trials)

    def _none(self, trials: Sequence[Trial]) -> LaunchError:
        notes = tuple(Note(str(t)) for t in trials)
        return LaunchError(_problem(f"no configuration of `{self.__name__}` can run here", "add others", notes))

    def _class(self, found: Situation, kwargs: Mapping[str, Any]) -> str:
        """Return the class of a call: machine, alignments, constants, and the key's values."""
        values = {**found.values, **found.scalars}
        unknown = [name for name in self.key if name not in values]
        if unknown:
            raise LaunchError(_problem(f"`{unknown[0]}` of the key is no size or scalar of the kernel", "name a size"))
        sizes = ", ".join(f"{name}={size_class(values[name])}" for name in self.key)
        constants = {name: value for name, value in kwargs.items() if name not in found.tensors}
        return f"{found.machine} {sorted(found.alignments.items())} {sorted(constants.items())!r} {sizes}"

    def _entry_key(self, name: str) -> str:
        of = self._source.text
        text = {"text": of.file.digest, "name": of.name, "configs": [str(c) for c in self.configs]}
        return cache_key({"kind": "autotune", "compiler": compiler(), "class": name, **text})

    # ------------------------------------------------------------------ finding the best

    def _tune(self, name: str, found: Situation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        """Return the position of the fastest configuration; store the outcome of all in `trials`."""
        with progress(f"autotune {self.__name__}", len(self.configs)) as show:
            trials = self._pruned(found, kwargs, show)
            left = [place for place, trial in enumerate(trials) if not trial.reason]
            orders = [self._order(found, kwargs, self.configs[place]) for place in left]
            show.stage("prove and build", len(left))
            for done, reason in build_all(orders, self._build):
                show.step(str(self.configs[left[done]]))
                trials[left[done]] = _with(trials[left[done]], None, reason)
            left = [place for place in left if not trials[place].reason]
            show.stage("time", len(left))
            copies, named = found.copies(args, kwargs)
            for place in left:
                config = self.configs[place]
                show.step(str(config))
                call = partial(self.kernel, *copies, **named, **config.keywords)
                trials[place] = self._timed(trials[place], call, found.device)
        self.trials[name] = tuple(trials)
        timed = [(t.milliseconds, place) for place, t in enumerate(trials) if t.milliseconds is not None]
        if not timed:
            raise self._none(trials)
        return min(timed)[1]

    def _timed(self, trial: Trial, call: Callable[[], object], device: str) -> Trial:
        try:
            return _with(trial, self._bench(call, device), "")
        except (ArgusError, RuntimeError) as error:
            return _with(trial, None, str(error).strip().splitlines()[0])

    def _order(self, found: Situation, kwargs: Mapping[str, Any], config: Config) -> BuildRequest:
        return BuildRequest(self._source.text, self._options(found, kwargs, config), self._disk().directory)

    def _disk(self) -> DiskCache:
        return self._source.cache or DiskCache(cache_directory())

    def _options(self, found: Situation, kwargs: Mapping[str, Any], config: Config) -> Options:
        """Return the options with which a call with these constants is compiled."""
        constants = {name: kwargs[name] for name in found.constants if name in kwargs}
        return Options(found.target, config.num_warps, {**constants, **config.constants}, found.alignments)

    def _pruned(self, found: Situation, kwargs: Mapping[str, Any], show: Progress) -> list[Trial]:
        """Return a trial for each configuration; those that are not worth building have a reason."""
        from argus.compile import elaborate, lower
        from argus.tuning.work import work_of

        of = self._source.text
        show.stage("check", len(self.configs))
        model = MODELS.get(found.target)
        trials: list[Trial] = []
        for config in self.configs:
            show.step(str(config))
            try:
                tile = elaborate(of.file, of.name, self._options(found, kwargs, config))
                explicit = lower(tile, found.target)
            except ArgusError as error:
                trials.append(Trial(config, None, error.diagnostics[0].message))
                continue
            if model is None:
                trials.append(Trial(config, None))
                continue
            expected = estimate(work_of(explicit, {**found.values, **found.scalars}), model)
            trials.append(Trial(config, None, expected.reason, expected.seconds * 1e6))
        fastest = min((t.predicted_us for t in trials if t.predicted_us is not None and not t.reason), default=0.0)
        return [_unless_slow(t, fastest) for t in trials]


def _unless_slow(trial: Trial, fastest_us: float) -> Trial:
    if trial.reason or trial.predicted_us is None or trial.predicted_us <= SLOWER * fastest_us:
        return trial
    reason = f"the model expects {trial.predicted_us:.1f} us, and {fastest_us:.1f} us of the best"
    return _with(trial, None, reason)


def _with(trial: Trial, milliseconds: float | None, reason: str) -> Trial:
    return Trial(trial.config, milliseconds, reason, trial.predicted_us)


def _facts(value: Any) -> Hashable:
    """Return the properties of an argument that a choice can depend on.

    For a tensor or array these are all but its address, of which only the alignment counts. A number is kept as it is.
    """
    if hasattr(value, "data_ptr"):
        return value.shape, value.stride(), value.dtype, value.device, value.data_ptr() & 15
    if hasattr(value, "ctypes"):
        return value.shape, value.strides, value.dtype, value.ctypes.data & 15
    return type(value), value


def size_class(value: float) -> float:
    """Return a positive integer rounded up to a power of two, and any other number as it is."""
    return value if not isinstance(value, int) or value < 1 else 1 << (value - 1).bit_length()


def autotune(configs: Sequence[Config], key: Sequence[str] = ()) -> Callable[[JitKernel], Autotuner]:
    """Make a kernel choose among `configs` by the sizes and scalars that `key` names. It is written above
    `@argus.kernel`.

    Raises LaunchError "no-configuration" if there are no configurations.
    """
    if not configs:
        raise LaunchError(_problem("there are no configurations", "write `configs=[argus.Config({...}), ...]`"))
    for config in configs:
        if not isinstance(config, Config):
            text = f"a {type(config).__name__} is no configuration"
            raise LaunchError(_problem(text, "write `configs=[argus.Config({...}), ...]`"))

    def decorate(kernel: JitKernel) -> Autotuner:
        if not isinstance(kernel, JitKernel):
            text = f"a {type(kernel).__name__} has no configurations to choose from: it is no kernel"
            raise LaunchError(_problem(text, "write `@argus.autotune(...)` above `@argus.kernel`"))
        return Autotuner(kernel, configs, key)

    return decorate


def _problem(message: str, help: str, notes: tuple[Note, ...] = ()) -> Diagnostic:
    return Diagnostic("no-configuration", message, property="launch", help=help, notes=notes)
