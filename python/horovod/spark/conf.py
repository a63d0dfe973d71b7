"""Settings of Spark that decide what happens to failing tasks of an elastic job: pairs of key and value.

The keys are those of Spark 3.1 and later (``spark.excludeOnFailure``; before, ``spark.blacklist``).

>>> from pyspark.sql import SparkSession
>>> from horovod.spark import conf
>>> builder = SparkSession.builder.config(*conf.SPARK_CONF_ALWAYS_RESTART_FAILED_TASK)
"""

_ATTEMPTS = "spark.task.maxFailures"
_EXCLUDE = "spark.excludeOnFailure"

SPARK_CONF_MAX_INT = "2147483647"
SPARK_CONF_MAX_INT_MINUS_ONE = "2147483646"

SPARK_CONF_DEFAULT_VALUES = {
    _ATTEMPTS: "4",
    f"{_EXCLUDE}.enabled": "false",
    f"{_EXCLUDE}.stage.maxFailedTasksPerExecutor": "2",
    f"{_EXCLUDE}.stage.maxFailedExecutorsPerNode": "2",
    f"{_EXCLUDE}.task.maxTaskAttemptsPerExecutor": "1",
    f"{_EXCLUDE}.task.maxTaskAttemptsPerNode": "2",
    f"{_EXCLUDE}.application.maxFailedTasksPerExecutor": "2",
    f"{_EXCLUDE}.application.maxFailedExecutorsPerNode": "2",
}
"""What Spark has where none of these is set. The others count only if ``spark.excludeOnFailure.enabled`` is true."""

# Start a task again, however often it has failed.
SPARK_CONF_ALWAYS_RESTART_FAILED_TASK = (_ATTEMPTS, SPARK_CONF_MAX_INT)

# Whether executors and nodes are excluded on which tasks have failed.
SPARK_CONF_BLACKLIST_DISABLED = (f"{_EXCLUDE}.enabled", "false")
SPARK_CONF_BLACKLIST_ENABLED = (f"{_EXCLUDE}.enabled", "true")

# An executor, or a node's executors, on which tasks of this stage have failed.
SPARK_CONF_REUSE_FAILED_EXECUTOR = (f"{_EXCLUDE}.stage.maxFailedTasksPerExecutor", SPARK_CONF_MAX_INT)
SPARK_CONF_DONT_REUSE_FAILED_EXECUTOR = (f"{_EXCLUDE}.stage.maxFailedTasksPerExecutor", "1")
SPARK_CONF_REUSE_FAILING_NODE = (f"{_EXCLUDE}.stage.maxFailedExecutorsPerNode", SPARK_CONF_MAX_INT)
SPARK_CONF_DONT_REUSE_FAILING_NODE = (f"{_EXCLUDE}.stage.maxFailedExecutorsPerNode", "1")

# An executor, or a node, on which the same task has failed. Spark wants fewer attempts on a node than in all.
SPARK_CONF_REUSE_EXECUTOR_ALWAYS_FOR_SAME_TASK = (
    f"{_EXCLUDE}.task.maxTaskAttemptsPerExecutor",
    SPARK_CONF_MAX_INT_MINUS_ONE,
)
SPARK_CONF_REUSE_EXECUTOR_ONCE_FOR_SAME_TASK = (f"{_EXCLUDE}.task.maxTaskAttemptsPerExecutor", "2")
SPARK_CONF_DONT_REUSE_EXECUTOR_FOR_SAME_TASK = (f"{_EXCLUDE}.task.maxTaskAttemptsPerExecutor", "1")
SPARK_CONF_REUSE_NODE_ALWAYS_FOR_SAME_TASK = (f"{_EXCLUDE}.task.maxTaskAttemptsPerNode", SPARK_CONF_MAX_INT_MINUS_ONE)
SPARK_CONF_REUSE_NODE_ONCE_FOR_SAME_TASK = (f"{_EXCLUDE}.task.maxTaskAttemptsPerNode", "2")
SPARK_CONF_DONT_REUSE_NODE_FOR_SAME_TASK = (f"{_EXCLUDE}.task.maxTaskAttemptsPerNode", "1")

# An executor, or a node's executors, on which tasks of any stage have failed.
SPARK_CONF_REUSE_FAILED_EXECUTOR_IN_APP = (f"{_EXCLUDE}.application.maxFailedTasksPerExecutor", SPARK_CONF_MAX_INT)
SPARK_CONF_DONT_REUSE_FAILED_EXECUTOR_IN_APP = (f"{_EXCLUDE}.application.maxFailedTasksPerExecutor", "1")
SPARK_CONF_REUSE_FAILING_NODE_IN_APP = (f"{_EXCLUDE}.application.maxFailedExecutorsPerNode", SPARK_CONF_MAX_INT)
SPARK_CONF_DONT_REUSE_FAILING_NODE_IN_APP = (f"{_EXCLUDE}.application.maxFailedExecutorsPerNode", "1")
