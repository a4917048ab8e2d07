#!/bin/sh
# The command line of a TrojAI container, of every round: `infer ...`, `configure ...`, or the bare
# flags of rounds 0 to 9 and later, which mean infer. What the harness does not name is taken from
# the container; of a flag given twice the last one counts.
set -eu
case "${1-}" in
    infer | configure) command=$1; shift ;;
    *) command=infer ;;
esac
home=${JAXTROJ_CONTAINER-}
exec "${JAXTROJ_PYTHON:-python3}" -m jaxtroj "$command" \
    --metaparameters_filepath "$home/metaparameters.json" \
    --schema_filepath "$home/metaparameters_schema.json" \
    --learned_parameters_dirpath "$home/learned_parameters" \
    "$@"
