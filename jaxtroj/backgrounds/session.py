"""One network's challenge from start to result, in a run folder or in memory only."""

import contextlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxtroj.backgrounds import figure, matrix, results
from jaxtroj.backgrounds.challenge import Pairs, Plan, State, search
from jaxtroj.backgrounds.classifier import Classifier, Resident
from jaxtroj.backgrounds.layout import ChallengeData, Reading
from jaxtroj.backgrounds.run_folder import RunFolder
from jaxtroj.file_names import file_stem


@dataclass(frozen=True)
class Session:
    """What is to be answered.

    Attributes:
        name: of the network; names its run folder.
        description: JSON values that the answers of the network depend on.
        data, digest: see `ChallengeData.digest`.
        plan: see `challenge.Plan`.
        reading: how the pictures were read.
    """

    name: str
    description: Mapping[str, Any]
    data: ChallengeData
    digest: str
    plan: Plan
    reading: Reading

    def run(
        self,
        classifier: Classifier,
        precise: Classifier | None,
        on_device: Resident,
        out: Path | None = None,
        on_state: Callable[[State], None] = lambda state: None,
    ) -> dict[str, Any]:
        """Searches, and returns the result; with `out`, in a run folder that can be resumed.

        Args:
            classifier, precise: see `challenge.search`.
            on_device: the data, resident.
            out: folder of run folders.
            on_state: called after each batch.
        Raises:
            StoreError: see `RunFolder`.
            EvidenceError, UsageError: see `Classifier.judge`.
        """
        with contextlib.ExitStack() as stack:
            folder = None if out is None else stack.enter_context(self._folder(out))
            earlier = None if folder is None else folder.earlier
            parts: list[Pairs] = []
            for state in search(classifier, on_device, self.plan, earlier, precise):
                if folder is not None and parts:  # the first state repeats what is on file
                    folder.append(state.fresh)
                parts.append(state.fresh)
                on_state(state)
            answers = Pairs(*map(np.concatenate, zip(*parts, strict=True)))
            return self._finish(answers, state, folder)

    def _folder(self, out: Path) -> RunFolder:
        settings = {
            **self.description,
            "data": self.digest,
            "backgrounds": len(self.plan.chosen),
        }
        shape = (len(self.data.masks), len(self.data.backgrounds.names))
        return RunFolder(out / file_stem(self.name), settings, shape)

    def _finish(self, answers: Pairs, last: State, folder: RunFolder | None) -> dict[str, Any]:
        result = results.challenge_result(
            self.description, self.data, answers, last, self.plan.chosen, self.reading
        )
        result["recheck_margin_used"] = self.plan.recheck_margin
        # Also of an earlier call with --matrix, whose part of the result would be lost.
        if self.plan.every_pair or len(answers.predicted) == self._pairs:
            whole, chosen = self._matrix(answers), self.plan.chosen
            labels = self.data.backgrounds.labels[chosen]
            summary = matrix.summarise(whole[:, chosen], self.data.foregrounds.labels, labels)
            names = [self.data.backgrounds.names[i] for i in chosen]
            result["matrix"] = results.matrix_result(summary, names)
            if folder is not None:
                self._write_matrix(folder, whole, summary)
        if folder is not None:
            folder.flush()
            folder.write("result.json", results.to_bytes(result))
        return result

    @property
    def _pairs(self) -> int:
        return len(self.data.masks) * len(self.plan.chosen)

    def _matrix(self, answers: Pairs) -> np.ndarray:
        shape = (len(self.data.masks), len(self.data.backgrounds.names))
        return matrix.matrix_of(answers, *shape)

    def _write_matrix(
        self, folder: RunFolder, whole: np.ndarray, summary: matrix.MatrixSummary
    ) -> None:
        buffer = io.BytesIO()
        np.save(buffer, whole)
        folder.write("matrix.npy", buffer.getvalue())
        images = self.data.backgrounds.images[self.plan.chosen]
        shown = figure.most_adversarial(images, summary.most_adversarial)
        folder.write("most_adversarial.png", shown)
