"""Which page holds what, and the comparison of what is there with what should be."""

from __future__ import annotations

from pathlib import Path

from docs.generator import configuration, customresources, dashboards, diagrams, interface, limits, manpages
from docs.generator.checks import checks
from docs.generator.pages import DOCS, TOP, Maker, PageBroken, filled, part_names
from docs.generator.reasons import reasons
from svc.checks import cluster, local, preflight
from svc.data import FOLDER
from svc.manager.policies.resource import SvcClusterPolicySpec

UNITS = TOP / "svc" / "data" / "units"


def makers() -> dict[str, Maker]:
    """
    List everything that a page can contain.

    Returns:
        What makes each part, by its name.
    """
    found: dict[str, Maker] = {
        "bounds": limits.bounds,
        "lifetimes": limits.lifetimes,
        "key agreement": limits.agreement,
        "redacted headers": limits.redacted,
        "layers": diagrams.layers,
        "steps of a record": diagrams.recorded_steps,
        "life of an exchange": diagrams.exchange,
        "life of a source": diagrams.source,
    }
    for file, root in configuration.FILES.items():
        for model in configuration.models(root):
            name = f"keys of {model.__name__}"
            # Where two files call a mapping alike, the later one says whose it is.
            name = f"keys of {file} {model.__name__}" if name in found else name
            found[name] = lambda model=model: configuration.keys(model)  # type: ignore[misc]
    others = [*configuration.DOCUMENTS.values(), *configuration.CHART.values()]
    others.append(SvcClusterPolicySpec)
    shared = {model for root in others for model in configuration.models(root)}
    for model in shared:
        found[f"keys of {model.__name__}"] = lambda model=model: configuration.keys(model)  # type: ignore[misc]
    for package in interface.PACKAGES:
        found[f"names of {package}"] = lambda package=package: interface.names(package)  # type: ignore[misc]
    found["reasons"] = reasons
    for name, table in (("preflight", preflight), ("cluster", cluster), ("local", local)):
        found[f"checks of {name}"] = lambda table=table: checks(table.CHECKS)  # type: ignore[misc]
    for name in ("svc-agent", "svc-authority", "svc-broker", "svc-proxy"):
        found[f"unit {name}.service"] = lambda name=name: unit(f"{name}.service")  # type: ignore[misc]
    return found


def unit(name: str) -> str:
    """Quote a systemd unit of the package."""
    return f"```ini\n{(UNITS / name).read_text()}```\n"


def files() -> dict[Path, Maker]:
    """
    List the files that are generated as a whole.

    Returns:
        What makes each.
    """
    schemas: dict[Path, Maker] = {
        FOLDER / "schemas" / configuration.schema_file(name): lambda name=name: configuration.schema(name)  # type: ignore[misc]
        for name in configuration.FILES | configuration.DOCUMENTS
    }
    pages: dict[Path, Maker] = {
        FOLDER / "man" / "man1" / f"{'-'.join(path)}.1": lambda path=path: manpages.page(path)  # type: ignore[misc]
        for path in manpages.paths()
    }
    boards: dict[Path, Maker] = {
        FOLDER / "dashboards" / f"{board.name}.json": lambda board=board: dashboards.document(board)  # type: ignore[misc]
        for board in dashboards.dashboards()
    }
    chart: dict[Path, Maker] = {
        FOLDER / "chart" / configuration.schema_file("values"): lambda: configuration.schema("values"),
        FOLDER / "chart" / "values.yaml": configuration.chart_values,
        # Helm reads nothing outside the chart.
        FOLDER / "chart" / "alerts.yaml": (FOLDER / "alerts" / "alerts.yaml").read_text,
    }
    resources: dict[Path, Maker] = {
        FOLDER / "crds" / f"{name}.yaml": lambda name=name: customresources.definition(name)  # type: ignore[misc]
        for name in customresources.RESOURCES
    }
    return schemas | pages | boards | chart | resources


def wanted() -> dict[Path, str]:
    """
    Make everything.

    Returns:
        Each file with a generated part, as it should be.

    Raises:
        PageBroken: a generated part is on no page, or a page names a part that is not generated.
    """
    known, used = makers(), set[str]()
    found = {path: make() for path, make in files().items()}
    for path in sorted(DOCS.glob("*.md")):
        text = path.read_text()
        names = part_names(text)
        used.update(names)
        if names:
            found[path] = filled(text, known)
    if missing := set(known) - used:
        raise PageBroken(
            f"on no page: {', '.join(sorted(missing))}; add <!-- generated: NAME --> and <!-- end: NAME -->"
        )
    return found


def stale() -> list[str]:
    """
    Compare.

    Returns:
        The files that differ from what they should be, relative to the top folder.
    """
    return [
        str(path.relative_to(TOP)) for path, text in wanted().items() if not path.exists() or path.read_text() != text
    ]


def write_all() -> list[str]:
    """
    Refresh.

    Returns:
        The files that changed, relative to the top folder.
    """
    changed = stale()
    for path, text in wanted().items():
        if str(path.relative_to(TOP)) in changed:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return changed
