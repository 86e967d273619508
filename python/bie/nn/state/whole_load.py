"""``load_state_dict`` of a model, all or nothing: layers take their entries once every module has read its own."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

from torch import nn

from bie.nn.state.weight_state import StagedState


class _Kept:
    """A hook, and the dict in which its handle registered it: the handle has but a weak reference."""

    def __init__(self, hook: Callable[..., Any], hooks: _Hooks) -> None:
        self.hook, self.hooks = hook, hooks

    def __call__(self, *args: Any) -> Any:
        return self.hook(*args)

    def __reduce__(self) -> tuple:
        return _itself, (self.hook,)


def _itself(hook: Callable[..., Any]) -> Callable[..., Any]:
    return hook


class _Hooks(OrderedDict):
    """A root's post hooks between ours while it loads; what is registered or removed here is so in its own."""

    def __init__(self, load: _Load, own: OrderedDict) -> None:
        super().__init__({id(load): load} | own | {-id(load): load.end})
        self.own = own

    def __setitem__(self, key: int, hook: Any) -> None:
        super().__setitem__(key, hook)
        if "own" in self.__dict__:
            self.own[key] = _Kept(hook, self)

    def __delitem__(self, key: int) -> None:
        super().__delitem__(key)
        self.own.pop(key, None)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.own.__reduce_ex__(protocol)


class _Load:
    """What layers take when a call of ``load_state_dict`` has visited its last module: a post hook of the root."""

    def __init__(self, root: nn.Module, strict: bool, missing_keys: list[str], error_msgs: list[str]) -> None:
        self.strict, self.missing_keys, self.error_msgs = strict, missing_keys, error_msgs
        self.hooks = root._load_state_dict_post_hooks
        self.steps: list[Callable[[], None]] = []
        self.undecided = False
        root._load_state_dict_post_hooks = _Hooks(self, self.hooks)

    def leave(self, root: nn.Module) -> None:
        root._load_state_dict_post_hooks = self.hooks

    def __call__(self, root: nn.Module, keys: Any) -> None:
        self.leave(root)
        ended_in_an_exception = keys.missing_keys is not self.missing_keys
        if ended_in_an_exception or self.error_msgs:
            return
        self.undecided = self.strict and any(keys)
        if not self.undecided:
            self.take()

    def end(self, root: nn.Module, keys: Any) -> None:
        """Behind the root's own hooks, which may have forgiven keys for which torch would refuse the load."""
        if self.undecided and not any(keys):
            self.take()

    def take(self) -> None:
        for step in self.steps:
            step()


def _running() -> dict[str, Any] | None:
    """The variables of the innermost call of torch's ``load_state_dict``, whoever wrapped it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "load_state_dict" and frame.f_globals.get("__name__") == nn.Module.__module__:
            found = dict(frame.f_locals)  # of its own: from Python 3.13 on the keys of a view are a list
            return found if found.keys() >= {"self", "strict", "missing_keys", "error_msgs"} else None
        frame = frame.f_back
    return None


def unless_refused(step: Callable[[], None]) -> None:
    """Calls ``step`` when the running ``load_state_dict`` has visited its last module, unless it will be refused."""
    call = _running()
    if call is None:
        step()
    else:
        _when_all_were_visited(step, call["missing_keys"], call["error_msgs"])


def _when_all_were_visited(step: Callable[[], None], missing_keys: list[str], error_msgs: list[str]) -> None:
    """Calls ``step`` once the running ``load_state_dict`` has visited its last module, unless it will be refused.

    torch tells a layer neither the root of its model nor when the last module was visited, and has no hook for all
    models: the root is read off the call's frame. Where there is no such call (``_load_from_state_dict`` by hand), or
    where a module below the root has post hooks, which read what was loaded, ``step`` is called at once. Post hooks of
    the root see what was loaded, but for those of a strict load with keys that are missing or too many: whether it is
    refused is known behind them alone.
    """
    call = _running()
    if call is None or call["error_msgs"] is not error_msgs:
        step()
        return
    root, strict = call["self"], call["strict"]
    for hook in root._load_state_dict_post_hooks.values():
        if isinstance(hook, _Load):
            if hook.error_msgs is error_msgs:
                hook.steps.append(step)
                return
            hook.leave(root)
            break
    if any(module._load_state_dict_post_hooks for module in root.modules() if module is not root):
        step()
    else:
        _Load(root, strict, missing_keys, error_msgs).steps.append(step)


def _is_overridden(layer: nn.Module) -> bool:
    """Whether a subclass of a user's loads besides, and reads what this load gave the layer."""
    name = "_load_from_state_dict"
    owner = next(kind for kind in type(layer).__mro__ if name in vars(kind))
    return name in vars(layer) or not owner.__module__.startswith(__name__.partition(".")[0] + ".")


def load_layer(
    layer: nn.Module,
    names: Iterable[str],
    check: Callable[[dict[str, Any], str], StagedState],
    take: Callable[[StagedState], None],
    state_dict: dict[str, Any],
    prefix: str,
    local_metadata: dict[str, Any],
    strict: bool,
    missing_keys: list[str],
    unexpected_keys: list[str],
    error_msgs: list[str],
) -> None:
    """``_load_from_state_dict`` of a layer: ``check`` reads the entries ``names``, ``take`` gets them if all fits.

    What a subclass has besides is torch's to load, and its hooks run once. One that overrides the method gets the
    entries at once.
    """
    hooks = layer._load_state_dict_pre_hooks
    for hook in hooks.values():
        hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
    names = set(names)
    own = {name: state_dict[prefix + name] for name in names if prefix + name in state_dict}
    try:
        staged = check(own, prefix)
    except ValueError as error:
        error_msgs.append(str(error))
        return
    rest = {name: value for name, value in state_dict.items() if name.removeprefix(prefix) not in own}
    also_missing: list[str] = []
    layer._load_state_dict_pre_hooks = type(hooks)()
    try:
        nn.Module._load_from_state_dict(
            layer, rest, prefix, local_metadata, strict, also_missing, unexpected_keys, error_msgs
        )
    finally:
        layer._load_state_dict_pre_hooks = hooks
    missing_keys += [name for name in also_missing if name.removeprefix(prefix) not in names]
    missing_keys += [prefix + name for name in staged.missing]
    if strict:
        unexpected_keys += [prefix + name for name in staged.unexpected]
    if error_msgs:
        return
    if _is_overridden(layer):
        take(staged)
    else:
        _when_all_were_visited(lambda: take(staged), missing_keys, error_msgs)
