#!/bin/sh
# Sends a job to YARN with a whole Python environment, so that its machines need none of their own.
#
#     deploy/yarn/submit.sh deploy/jobs/stream_to_parquet.py nameserver:9876 Orders hdfs:///orders hdfs:///checkpoint
#
# Needs on this machine: Spark's `spark-submit` for YARN, HADOOP_CONF_DIR, and a Python 3.11 or later of the same
# version and kind of system as the cluster's machines. The environment is made once, beside this script.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
archive=${SPARROW_ENVIRONMENT:-$here/environment.tar.gz}
: "${HADOOP_CONF_DIR:?set it to the directory with core-site.xml and yarn-site.xml}"
[ $# -gt 0 ] || { echo "usage: $0 JOB.py [ARGUMENT...]" >&2; exit 2; }

if [ ! -f "$archive" ]; then
    made=$(mktemp -d)
    trap 'rm -rf "$made"' EXIT
    python3 -m venv --copies "$made/environment"
    "$made/environment/bin/pip" install --quiet 'sparrowmq[spark,avro,protobuf]' venv-pack
    "$made/environment/bin/venv-pack" --prefix "$made/environment" --output "$archive"
fi

exec "${SPARK_HOME:+$SPARK_HOME/bin/}spark-submit" \
    --master yarn \
    --deploy-mode cluster \
    --archives "$archive#environment" \
    --conf spark.yarn.appMasterEnv.PYSPARK_PYTHON=./environment/bin/python \
    --conf spark.executorEnv.PYSPARK_PYTHON=./environment/bin/python \
    --conf spark.python.unix.domain.socket.enabled=true \
    --conf spark.yarn.maxAppAttempts=10 \
    "$@"
