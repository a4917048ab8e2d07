"""`text_model`: a fine-tuned text classifier of transformers, from config and weights."""

from converters.encoders.classifier import classifier_model
from converters.errors import ConversionError
from converters.hub.classifier import label_finding
from converters.hub.folder import CONFIG, HubFolder
from converters.input_form import NOTHING_SAID, InputForm
from converters.model import Model


def text_model(folder: HubFolder, form: InputForm) -> Model:
    """The model of a Hugging Face folder of a text classifier, over token ids and masks.

    Raises:
      UnsupportedArchitectureError: transformers' class is not one of those that are converted.
      MismatchError: config and weights do not fit each other.
      ConversionError: the form says anything of pixels.
    """
    if form != NOTHING_SAID:
        raise ConversionError(
            "the network takes texts; layout, bounds, mean, std, output and image size are for"
            " pictures"
        )
    model = classifier_model(folder.config, folder.weights.tensors, CONFIG)
    findings = (*folder.findings, *folder.weights.findings, *label_finding(folder.config))
    return Model(model.config, model.params, model.architecture, findings)
