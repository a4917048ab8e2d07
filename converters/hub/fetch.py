"""Networks on a hub by name, `hf://ORG/NAME[@REVISION]`, fetched by the hub's own client.

Its cache, tokens, offline mode and endpoint are those of `huggingface_hub`; only config and weights
are fetched, never code.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from converters.errors import LoadError, TooLargeError, safe_repr
from converters.hub.folder import CONFIG, PROCESSORS, TOKENIZERS
from converters.hub.weights import weight_files

# A path has lost one of the two slashes.
_ADDRESS = re.compile(r"hf:/{1,2}(?P<repository>[^@]*)(?:@(?P<revision>.*))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SAFE = ("model*.safetensors", "model.safetensors.index.json")
_PICKLED = ("pytorch_model*.bin", "pytorch_model.bin.index.json")
MOST_BYTES = 2**35
"""Of one repository's files; the hub says their sizes before any is fetched."""
_LOG_IN = "log in with HF_TOKEN or `hf auth login`"


@dataclass(frozen=True)
class HubAddress:
    """A repository on the hub and a revision of it: a branch, a tag or a commit."""

    repository: str
    revision: str = "main"

    def __str__(self) -> str:
        return f"hf://{self.repository}@{self.revision}"


def address_of(text: str) -> HubAddress | None:
    """The address that a text is; None for any other, such as a path.

    >>> str(address_of("hf://org/net@v1.0")), address_of("hf/net.pt")
    ('hf://org/net@v1.0', None)
    """
    found = _ADDRESS.fullmatch(text)
    if found is None:
        return None
    return HubAddress(found["repository"].strip("/"), found["revision"] or "main")


def fetch(text: str) -> Path:
    """The folder of a repository's config and weights in the hub's cache, fetched where it is not.

    See `converters.fetching` for a limit of time.

    Args:
      text: `hf://ORG/NAME[@REVISION]`.

    Raises:
      LoadError: there is no such repository or revision, it is gated, or the hub is out of reach.
      TooLargeError: it has more than `MOST_BYTES` of weights.
    """
    from huggingface_hub import constants, errors

    address = address_of(text)
    if address is None:
        raise LoadError(f"{safe_repr(text)} names no repository, expected hf://ORG/NAME")
    name = address.repository
    try:
        folder = _snapshot(address, _SAFE)
        # transformers takes them only where there is nothing else, and so do we.
        return folder if weight_files(folder) else _snapshot(address, _PICKLED)
    except TooLargeError:
        raise
    except errors.GatedRepoError as error:
        raise LoadError(f"{name} is gated: accept its terms on the hub, then {_LOG_IN}") from error
    except errors.RepositoryNotFoundError as error:
        raise LoadError(
            f"the hub has no {name}, or it is private; check the name, or {_LOG_IN}"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise LoadError(
            f"{name} has no revision {address.revision}; name a branch, a tag or a commit"
        ) from error
    except errors.HFValidationError as error:
        raise LoadError(f"{address} names no repository, expected hf://ORG/NAME") from error
    except Exception as error:  # the client's kinds of network fault are many, and change
        raise LoadError(
            f"cannot fetch {address} from {constants.ENDPOINT}, and the cache has not all of it"
            f" ({type(error).__name__}); download it where there is a network, and name the folder"
        ) from error


def _snapshot(address: HubAddress, weights: tuple[str, ...]) -> Path:
    from huggingface_hub import snapshot_download

    patterns = [CONFIG, *PROCESSORS, *TOKENIZERS, *weights]
    sizes = _sizes(address)
    if sizes is None and not _COMMIT.fullmatch(address.revision):
        where = "the hub was not asked or not reached"
        said = f"jaxtroj: {where}: {address} is what the cache has of it, if anything"
        print(said, file=sys.stderr, flush=True)  # a fetching process ends without flushing
    _refuse_large(address, sizes or {}, patterns)
    return Path(
        snapshot_download(
            address.repository,
            revision=address.revision,
            allow_patterns=patterns,
            local_files_only=sizes is None,
        )
    )


def _sizes(address: HubAddress) -> dict[str, int] | None:
    """Bytes of the files that the hub says; None where the hub is out of reach or says nothing.

    The client waits for ever for the list of files that a download begins with. This call does
    not, so it decides whether there is anybody to download from.
    """
    from huggingface_hub import HfApi, constants, errors

    seconds = constants.HF_HUB_ETAG_TIMEOUT
    try:
        told = HfApi().model_info(
            address.repository, revision=address.revision, files_metadata=True, timeout=seconds
        )
    except (errors.HfHubHTTPError, errors.HFValidationError):  # the download meets it again
        return {}
    except Exception:  # the client's kinds of network fault are many, and change
        return None
    return {file.rfilename: file.size or 0 for file in told.siblings or ()}


def _refuse_large(address: HubAddress, sizes: dict[str, int], patterns: list[str]) -> None:
    """Raise TooLargeError where it is larger than any network that is scanned."""
    from huggingface_hub.utils import filter_repo_objects

    total = sum(sizes[name] for name in filter_repo_objects(sizes, allow_patterns=patterns))
    if total > MOST_BYTES:
        raise TooLargeError(
            f"{address} has {total} bytes of weights, expected at most {MOST_BYTES}; download it"
            " where there is room, and name the folder"
        )
