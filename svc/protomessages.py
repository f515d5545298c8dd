"""
Messages of Protocol Buffers that are described at import and not generated: protobuf passes over the fields that are
not named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

#: The fields of a message by number: a name, and a type with ``[]`` behind it where the field is repeated.
Fields = Mapping[int, tuple[str, str]]
_TYPES: Final = {
    "string": FieldDescriptorProto.TYPE_STRING,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
}


def describe(file_name: str, package: str, messages: Mapping[str, Fields]) -> Callable[[str], Any]:
    """
    Describe messages.

    Args:
        file_name: of the description, unique in the process.
        package: their package.
        messages: each with its fields, whose types are ``string``, ``bool``, ``int32``, ``int64``,
            ``bytes`` or another message.

    Returns: what gives the class of a message by its name.
    """
    file = FileDescriptorProto(name=file_name, package=package, syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in fields.items():
            element = kind.removesuffix("[]")
            repeated = FieldDescriptorProto.LABEL_REPEATED if element != kind else FieldDescriptorProto.LABEL_OPTIONAL
            added = message.field.add(name=field, number=number, label=repeated)
            if element in _TYPES:
                added.type = _TYPES[element]
            else:
                added.type, added.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{package}.{element}"
    pool = DescriptorPool()
    pool.Add(file)
    return lambda name: GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
