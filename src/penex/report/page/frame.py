"""The frame of every page: a template, our style with the colours of the losses, our script."""

from pathlib import Path
from typing import Any

from penex import registry
from penex.report.plain import publishable

_HERE = Path(__file__).parent

# Colours that are too dark for a dark page, and what stands for them there.
_ON_DARK = {
    "#0072B2": "#7b93ff",
    "#000000": "#ffffff",
    "#5B4A9E": "#a99be8",
    "#8A1C1C": "#e08a8a",
    "#8C6D1F": "#c9a648",
    "#D55E00": "#f07d26",
    "#7F7F7F": "#a8a8a8",
    "#117733": "#3fae63",
    "#882255": "#d477a6",
}


def render(template: str, context: dict[str, Any], folder: Path = _HERE) -> str:
    """A page from its template in a folder, with our style and script in it."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, _HERE]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    context = {**context, "command": publishable(context["command"])}
    style = safe((_HERE / "style.css").read_text("utf-8") + _loss_colours())
    script = safe((_HERE / "script.js").read_text("utf-8"))
    return environment.get_template(template).render(context, style=style, script=script)


def safe(text: str) -> str:
    """Text that is HTML already, and ours."""
    from markupsafe import Markup

    return Markup(text)


def _loss_colours() -> str:
    """The colour of each loss, the same as in the figures; lighter on a dark page if need be."""
    light, dark = [], []
    for name in registry.LOSSES:
        tone = registry.colour(name)
        variable = f"--loss-{name.replace('_', '-')}"
        light.append(f"{variable}:{tone};")
        dark.append(f"{variable}:{_ON_DARK.get(tone, tone)};")
    return (
        f":root{{{''.join(light)}}}"
        f"@media (prefers-color-scheme: dark){{:root{{{''.join(dark)}}}}}"
        f"@media print{{:root{{{''.join(light)}}}}}"
    )
