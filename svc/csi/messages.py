"""The messages of the Container Storage Interface 1.11 and of the kubelet's plugin registration that are used here."""

from __future__ import annotations

from typing import Final

from svc.protomessages import Fields, describe

_MESSAGES: Final[dict[str, Fields]] = {
    # Of all requests and answers without a field that is used.
    "Empty": {},
    # A map is the list of its entries.
    "MapEntry": {1: ("key", "string"), 2: ("value", "string")},
    "GetPluginInfoResponse": {1: ("name", "string"), 2: ("vendor_version", "string")},
    "NodeGetInfoResponse": {1: ("node_id", "string")},
    "VolumeCapability": {1: ("block", "Empty"), 2: ("mount", "Empty")},
    "NodePublishVolumeRequest": {
        1: ("volume_id", "string"),
        4: ("target_path", "string"),
        5: ("volume_capability", "VolumeCapability"),
        6: ("readonly", "bool"),
        8: ("volume_context", "MapEntry[]"),
    },
    "NodeUnpublishVolumeRequest": {1: ("volume_id", "string"), 2: ("target_path", "string")},
    "PluginInfo": {
        1: ("type", "string"),
        2: ("name", "string"),
        3: ("endpoint", "string"),
        4: ("supported_versions", "string[]"),
    },
    "RegistrationStatus": {1: ("plugin_registered", "bool"), 2: ("error", "string")},
}
_message = describe("svc/csi/messages.proto", "svc.csi", _MESSAGES)

Empty: Final = _message("Empty")
MapEntry: Final = _message("MapEntry")
VolumeCapability: Final = _message("VolumeCapability")
GetPluginInfoResponse: Final = _message("GetPluginInfoResponse")
NodeGetInfoResponse: Final = _message("NodeGetInfoResponse")
NodePublishVolumeRequest: Final = _message("NodePublishVolumeRequest")
NodeUnpublishVolumeRequest: Final = _message("NodeUnpublishVolumeRequest")
PluginInfo: Final = _message("PluginInfo")
RegistrationStatus: Final = _message("RegistrationStatus")
