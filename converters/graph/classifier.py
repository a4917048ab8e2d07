"""A captured classifier as a model: the family's module where it is one, else the graph itself."""

from dataclasses import replace

from converters.graph.module import graph_model, precision_finding
from converters.graph.offsets import rounded_away
from converters.graph.outputs import output_of
from converters.graph.recognition import family_model
from converters.graph.recorder import Captured
from converters.input_form import InputForm
from converters.model import Model
from converters.preparation import prepared


def classifier(
    captured: Captured,
    form: InputForm,
    findings: tuple[str, ...] = (),
    layout: str = "NCHW",
    output: int | None = None,
) -> Model:
    """The model of a network that was captured for one image.

    Args:
      captured: with one input.
      form: what stands in front of it.
      findings: what was noticed on the way.
      layout: order of the input's axes.
      output: number of the output with the logits; found by `output_of` if not given.

    Raises:
      ConversionError: the graph is no classifier of one image, or `form` does not fit it.
    """
    if output is None:
        output, said = output_of(captured, form.output)
        findings = (*findings, *said)
    findings = (*findings, *form.unsaid, *precision_finding(captured))
    known = family_model(captured) if layout == "NCHW" and output == 0 else None
    if known is not None and not any(rounded_away(captured)):
        return prepared(replace(known, findings=findings), form.bounds, form.mean, form.std)
    return graph_model(
        captured,
        layout=layout,
        output=output,
        bounds=form.bounds,
        mean=form.mean,
        std=form.std,
        findings=findings,
    )
