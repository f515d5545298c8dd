"""
The messages of SPIRE's Entry API that are used here (``spire.api.server.entry.v1`` and ``spire.api.types``).

Described at import and not generated: protobuf passes over the fields that are not named.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_PACKAGE: Final = "spire.api.types"
_TYPES: Final = {
    "string": FieldDescriptorProto.TYPE_STRING,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
}
#: Messages with their fields by number: a name, and a type with ``[]`` behind it where the field is repeated.
_MESSAGES: Final[dict[str, dict[int, tuple[str, str]]]] = {
    "SPIFFEID": {1: ("trust_domain", "string"), 2: ("path", "string")},
    "Selector": {1: ("type", "string"), 2: ("value", "string")},
    "Status": {1: ("code", "int32"), 2: ("message", "string")},
    "Entry": {
        1: ("id", "string"),
        2: ("spiffe_id", "SPIFFEID"),
        3: ("parent_id", "SPIFFEID"),
        4: ("selectors", "Selector[]"),
        5: ("x509_svid_ttl", "int32"),
        6: ("federates_with", "string[]"),
        7: ("admin", "bool"),
        8: ("downstream", "bool"),
        9: ("expires_at", "int64"),
        10: ("dns_names", "string[]"),
        12: ("store_svid", "bool"),
        13: ("jwt_svid_ttl", "int32"),
        14: ("hint", "string"),
    },
    "ListEntriesRequest": {3: ("page_size", "int32"), 4: ("page_token", "string")},
    "ListEntriesResponse": {1: ("entries", "Entry[]"), 2: ("next_page_token", "string")},
    # Of creations and updates; a deletion names the identifier alone.
    "BatchEntryRequest": {1: ("entries", "Entry[]")},
    "BatchDeleteEntryRequest": {1: ("ids", "string[]")},
    "Result": {1: ("status", "Status")},
    "BatchEntryResponse": {1: ("results", "Result[]")},
}


def _described() -> FileDescriptorProto:
    file = FileDescriptorProto(name="svc/spire/messages.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in fields.items():
            element = kind.removesuffix("[]")
            repeated = FieldDescriptorProto.LABEL_REPEATED if element != kind else FieldDescriptorProto.LABEL_OPTIONAL
            added = message.field.add(name=field, number=number, label=repeated)
            if element in _TYPES:
                added.type = _TYPES[element]
            else:
                added.type, added.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{_PACKAGE}.{element}"
    return file


_POOL: Final = DescriptorPool()
_POOL.Add(_described())


def _message(name: str) -> Any:
    return GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


EntryMessage: Final = _message("Entry")
ListEntriesRequest: Final = _message("ListEntriesRequest")
ListEntriesResponse: Final = _message("ListEntriesResponse")
BatchEntryRequest: Final = _message("BatchEntryRequest")
BatchDeleteEntryRequest: Final = _message("BatchDeleteEntryRequest")
BatchEntryResponse: Final = _message("BatchEntryResponse")
