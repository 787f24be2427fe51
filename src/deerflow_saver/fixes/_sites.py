"""Patches made of wrapped attributes, put in place and taken back by identity.

A wrapper that lies beneath somebody else's plain function cannot be taken out: it stays,
without effect, and `CannotRevertError` says who is on top.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import wrapt

from deerflow_saver.fixes._fix import CannotPatchError, CannotRevertError, Patch

__all__ = ["Site", "Wrapper", "patch", "require"]

Wrapper = Callable[[Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]
"""wrapt's form: `(wrapped, instance, args, kwargs)`."""


@dataclass(frozen=True, slots=True)
class Site:
    """One attribute to wrap.

    Attributes:
        module: where it lives; imported only when the patch is applied.
        path: dotted path in the module.
        wrapper: what runs instead.
        takes: parameters it must have for `wrapper` to fit.

    """

    module: str
    path: str
    wrapper: Wrapper
    takes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As written in code."""
        return f"{self.module}.{self.path}"


def patch(
    *sites: Site,
    text: str,
    unguarded: bool = False,
    check: Callable[[], None] | None = None,
) -> Patch:
    """A patch that wraps all `sites`, or none.

    Args:
        sites: the attributes.
        text: see `Patch`.
        unguarded: see `Patch`.
        check: raises `CannotPatchError` where the release lacks something else that is used.

    """
    wraps = _Wraps(sites, check)
    return Patch(wraps.apply, wraps.revert, text=text, unguarded=unguarded)


class _Wraps:
    """The wrappers of one patch; the registry's lock is held by every caller."""

    def __init__(self, sites: tuple[Site, ...], check: Callable[[], None] | None) -> None:
        self._sites = sites
        self._check = check
        self._handles: dict[Site, Any] = {}
        self._newest: dict[Site, object] = {}
        self._active = False

    def apply(self) -> None:
        """Wrap every site that is not wrapped yet."""
        for site in self._sites:
            require(site.module, site.path, site.takes)
        if self._check is not None:
            self._check()
        try:
            for site in self._sites:
                self._wrap(site)
        except BaseException:
            self.revert()
            raise
        self._active = True

    def _wrap(self, site: Site) -> None:
        """Wrap once more what cannot be seen through: the wrapper beneath then does nothing."""
        if site in self._handles:
            _, _, current = wrapt.resolve_path(site.module, site.path)
            if wrapt.is_wrapped_by(current, self._handles[site]):
                return  # an earlier revert could not take it out
        newest = self._newest[site] = object()
        self._handles[site] = wrapt.wrap_object(
            site.module,
            site.path,
            wrapt.FunctionWrapper,
            (_with_instance(site.wrapper) if "." in site.path else site.wrapper,),
            {"enabled": lambda: self._active and self._newest[site] is newest},
        )

    def revert(self) -> None:
        """Put back every original, last one first."""
        self._active = False
        stuck = [site for site in reversed(self._sites) if not self._unwrap(site)]
        if stuck:
            raise CannotRevertError("; ".join(_on_top(site) for site in stuck))

    def _unwrap(self, site: Site) -> bool:
        """Whether nothing of ours is left at the site."""
        handle = self._handles.get(site)
        if handle is None:
            return True
        try:
            wrapt.unwrap_object(site.module, site.path, handle)
        except (wrapt.WrapperNotOutermostError, wrapt.WrapperNotFoundError):
            return False
        del self._handles[site]
        return True


def _with_instance(wrapper: Wrapper) -> Wrapper:
    """For a method that somebody took out of the class's namespace and calls by hand."""

    def wrapped_method(
        wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if instance is None and args:
            instance, *rest = args
            return wrapper(functools.partial(wrapped, instance), instance, tuple(rest), kwargs)
        return wrapper(wrapped, instance, args, kwargs)

    return wrapped_method


def require(module: str, path: str, takes: tuple[str, ...] = ()) -> None:
    """Make sure that the installed release has a symbol, with those parameters.

    Raises:
        CannotPatchError: it has not.

    """
    try:
        _, _, found = wrapt.resolve_path(importlib.import_module(module), path)
    except (ImportError, wrapt.PathResolutionError) as error:
        msg = f"this release has no {module}.{path}"
        raise CannotPatchError(msg) from error
    parameters = inspect.signature(found).parameters if takes else {}
    missing = [name for name in takes if name not in parameters]
    if missing:
        msg = f"{module}.{path} of this release takes no {', '.join(missing)}"
        raise CannotPatchError(msg)


def _on_top(site: Site) -> str:
    _, _, current = wrapt.resolve_path(site.module, site.path)
    who = f"{getattr(current, '__module__', '?')}.{getattr(current, '__qualname__', '?')}"
    code = getattr(current, "__code__", None)
    where = f" (defined at {code.co_filename}:{code.co_firstlineno})" if code else ""
    return (
        f"{site.name} was wrapped or replaced by somebody else, now {who}{where}; "
        "left as it is, this package's wrapper beneath has no effect"
    )
