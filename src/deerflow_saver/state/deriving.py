"""Subclasses of a schema that differ in a few annotations, whatever kind of class it is."""

from __future__ import annotations

import dataclasses
from copy import copy
from types import new_class
from typing import Any

from pydantic import BaseModel, Field, create_model
from typing_extensions import is_typeddict

__all__ = ["derived"]


def derived(schema: Any, name: str, annotations: dict[str, Any]) -> Any:
    """A subclass of `schema` called `name`, with `annotations` in place of its own.

    A subclass keeps what a rebuilt class would lose: required and optional keys, defaults,
    validators, methods, and annotations that can only be read where they were written.
    """
    target = getattr(schema, "__origin__", schema)
    if not is_typeddict(target) and issubclass(target, BaseModel):
        return _model(target, name, annotations)
    if dataclasses.is_dataclass(target):
        return _dataclass(target, name, annotations)
    return _annotated(schema, name, annotations)


def _annotated(schema: Any, name: str, annotations: dict[str, Any]) -> Any:
    namespace = {
        "__annotations__": annotations,
        "__module__": schema.__module__,
        "__doc__": schema.__doc__,
    }
    return new_class(name, (schema,), exec_body=lambda body: body.update(namespace))


def _model(schema: type[BaseModel], name: str, annotations: dict[str, Any]) -> Any:
    def field(key: str) -> Any:
        known = schema.model_fields.get(key)
        return Field(default_factory=list) if known is None else copy(known)

    fields: dict[str, Any] = {key: (hint, field(key)) for key, hint in annotations.items()}
    return create_model(
        name, __base__=schema, __module__=schema.__module__, __doc__=schema.__doc__, **fields
    )


def _dataclass(schema: Any, name: str, annotations: dict[str, Any]) -> Any:
    known = {field.name for field in dataclasses.fields(schema)}
    added = {key: hint for key, hint in annotations.items() if key not in known}
    if not added:
        # Only what LangGraph reads changes: the constructor and the fields are inherited.
        return _annotated(schema, name, annotations)
    options = schema.__dataclass_params__
    fields: list[Any] = [
        (key, hint, dataclasses.field(default_factory=list, kw_only=True))
        for key, hint in added.items()
    ]
    made = dataclasses.make_dataclass(
        name,
        fields,
        bases=(schema,),
        namespace={"__module__": schema.__module__, "__doc__": schema.__doc__},
        **{
            flag: getattr(options, flag)
            for flag in ("repr", "eq", "order", "unsafe_hash", "frozen")
        },
    )
    made.__annotations__ = annotations
    return made
