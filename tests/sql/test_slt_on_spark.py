"""The test files of this folder hold on Spark, too, with crashes of the driver and a rescale."""

import pytest

from tests.conformance.conftest import KeptSpark
from tests.sql.test_slt import NAMES, assert_holds, name_of

pytestmark = [pytest.mark.spark, pytest.mark.extended]
# The points of the other crashes are in workers, which a test cannot reach on Spark.
MISHAPS = ("none", "seal", "publish", "rescale")
CASES = [
    (name, (at % 3 + 1, (1, 7, "random")[at % 3], ("rocksdb", "memory")[at % 2], mishap))
    for at, name in enumerate(NAMES)
    for mishap in (MISHAPS[at % 4],)
]


@pytest.mark.parametrize(("name", "condition"), CASES, ids=name_of)
def test_a_file_holds_on_spark(name, condition, spark):
    assert_holds(name, condition, new_executor=lambda: KeptSpark(spark))
