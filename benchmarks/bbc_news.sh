#!/bin/sh
# BBC News as the paper's main table has it, five seeds a loss, on a GPU: a process for each loss,
# for one model of this size leaves most of a GPU idle. It can be stopped and started again.
#
#     sh benchmarks/bbc_news.sh DATA ENCODER OUT [SEEDS [EPOCHS]]
#
# DATA holds bbc/ or bbc.csv.gz, ENCODER the three files of an encoder. Records go to OUT, their
# small form to OUT/small. It needs what `python -m penex.paper` needs, and transformers.
set -eu
data=$1 encoder=$2 out=$3 seeds=${4:-5} epochs=${5:-200}
python=${PYTHON:-python}
tuned="ce label_smoothing:epsilon=0.0019 confidence_penalty:lambda_=0.21 focal:gamma=1.2 \
penex:alpha=0.0037 penex:alpha=0.0037,rho=1e-6"
losses=${LOSSES:-$tuned}
mkdir -p "$out/logs"

table() {
    PYTHONUNBUFFERED=1 "$python" -m penex.paper table1 --task bbc_news --data "$data" \
        --encoder "$encoder" --seeds "$seeds" --epochs "$epochs" --save-seconds 60 \
        --out "$out" "$@"
}

for loss in $losses; do
    table --losses "$loss" >"$out/logs/$loss.log" 2>&1 &
done
wait
tail -qn 3 "$out"/logs/*.log
# shellcheck disable=SC2086
table --losses $losses --slim "$out/small"
