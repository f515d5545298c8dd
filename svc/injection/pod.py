"""What the webhook reads of a pod, as a model: everything else of it is neither read nor changed."""

from __future__ import annotations

from typing import Annotated, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Strict, ValidationError

from svc.errors import printable
from svc.injection.errors import ReviewInvalid

#: Where a pod does not say it.
_DEFAULT_GRACE: Final = 30
_ItemT = TypeVar("_ItemT")
ListOf = Annotated[tuple[_ItemT, ...], Strict(False)]
_ModelT = TypeVar("_ModelT", bound=BaseModel)


class Shape(BaseModel):
    """The base class of what is read of documents of Kubernetes: unknown keys are ignored, types are strict."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class ContainerPort(Shape):
    """A port that a container declares."""

    containerPort: int
    protocol: str | None = None


class Lifecycle(Shape):
    """What a container does at its start and before its end."""

    preStop: dict[str, object] | None = None


class Named(Shape):
    """A volume, or an environment variable."""

    name: str


class Reference(Shape):
    """A reference to an object of the namespace; the API server allows one without a name."""

    name: str = ""


class PodContainer(Shape):
    """A container, also an init container."""

    name: str
    env: ListOf[Named] | None = None
    ports: ListOf[ContainerPort] | None = None
    lifecycle: Lifecycle | None = None


class Metadata(Shape):
    """The metadata of a pod."""

    name: str | None = None
    generateName: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class PodSpec(Shape):
    """The specification of a pod."""

    containers: ListOf[PodContainer] | None = None
    initContainers: ListOf[PodContainer] | None = None
    volumes: ListOf[Named] | None = None
    imagePullSecrets: ListOf[Reference] | None = None
    hostNetwork: bool | None = None
    hostPID: bool | None = None
    shareProcessNamespace: bool | None = None
    terminationGracePeriodSeconds: int | None = None

    @property
    def grace(self) -> int:
        """Seconds from the request to end the pod until its processes are killed."""
        seconds = self.terminationGracePeriodSeconds
        return _DEFAULT_GRACE if seconds is None else seconds


class PodView(Shape):
    """A pod."""

    metadata: Metadata
    spec: PodSpec


def read_shape(document: object, model: type[_ModelT], what: str) -> _ModelT:
    """
    Validate the shape of a document.

    Raises:
        ReviewInvalid: naming the first value that has another shape; ``what`` is the document.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ReviewInvalid(defect=f"{printable(where, 100) or what}: {first['msg']}") from error
