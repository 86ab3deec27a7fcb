"""What is wrong with a pipeline is told at once, where it stands, with what was meant."""

import textwrap

import pytest

from bicycle_runtime.pipelines.building import build_pipeline
from bicycle_runtime.pipelines.documents import read_document
from bicycle_runtime.pipelines.errors import PIPELINE_INVALID, PIPELINE_UNREADABLE
from bicycle_runtime.pipelines.nodes import check_pipeline
from bicycle_sdk import StreamEnvironment
from bicycle_sdk.errors import BicycleError
from tests.raising import raises
from tests.unit.pipelines.pipeline_runs import checked

GOOD = """\
[source]
kind = "file"
path = "in.jsonl"
format = "jsonl"
time_field = "at"
[time]
allowed_lateness = "10s"
[window]
type = "tumbling"
size = "60s"
[ops]
count_by = "word"
agg = "count"
[sink]
kind = "file"
out_dir = "out"
"""
KAFKA = GOOD.replace(
    'kind = "file"\npath = "in.jsonl"\nformat = "jsonl"',
    'kind = "kafka"\nbootstrap_servers = "b:9092"\ntopic = "t"\ngroup_id = "g"',
)
KAFKA_SINK = GOOD.replace(
    'kind = "file"\nout_dir = "out"', 'kind = "kafka"\nbootstrap_servers = "b:9092"\ntopic = "t"'
)


FILE_SOURCE = 'kind = "file"\npath = "in.jsonl"\nformat = "jsonl"'
POSTGRES_SOURCE = 'kind = "postgres"\nurl = "postgresql://h/d"\ntable = "t"\ncolumn = "id"\n'
LOOKUP = "operator = 'lookup'\nurl = 'postgresql://h/d'\ntable = 't'\nkey = 'user'\n"


def problems(text, notation="toml"):
    """Return the problems of a text, as ``line:column: text``."""
    document = read_document(textwrap.dedent(text), file="p", notation=notation)
    try:
        build_pipeline(StreamEnvironment(), check_pipeline(document))
    except BicycleError as error:
        assert error.code == "BIC-2701", error
        return [f"{p['line']}:{p['column']}: {p['text']}" for p in error.facts["problems"]]
    return []


def changed(before, after, text=GOOD):
    assert before in text
    return text.replace(before, after)


def aggregates(*tables):
    return changed('agg = "count"', f"aggregates = [{', '.join(tables)}]")


def step(keys):
    return changed("[ops]", f"[[steps]]\n{keys}\n[ops]")


@pytest.mark.parametrize("text", [GOOD, KAFKA, KAFKA_SINK])
def test_good_pipelines_have_no_problems(text):
    assert problems(text) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (changed('path = "in.jsonl"\n', ""), "source.path must be set for file source"),
        (changed('path = "in.jsonl"', 'path = ""'), "source.path must be set"),
        (changed('format = "jsonl"', 'format = "xml"'), "unsupported source.format: xml"),
        (
            changed('bootstrap_servers = "b:9092"\n', "", KAFKA),
            "source.bootstrap_servers must be set for kafka source",
        ),
        (changed('topic = "t"\n', "", KAFKA), "source.topic must be set for kafka source"),
        (changed('group_id = "g"\n', "", KAFKA), "source.group_id must be set for kafka source"),
        (changed('kind = "file"\npath', 'kind = "ftp"\npath'), "unsupported source kind: ftp"),
        (
            changed('bootstrap_servers = "b:9092"\n', "", KAFKA_SINK),
            "sink.bootstrap_servers must be set for kafka sink",
        ),
        (changed('topic = "t"\n', "", KAFKA_SINK), "sink.topic must be set for kafka sink"),
        (changed('kind = "file"\nout', 'kind = "ftp"\nout'), "unsupported sink kind: ftp"),
        (changed('count_by = "word"\n', ""), "ops.count_by must be set (e.g., word field)"),
        (
            changed('agg = "count"', 'agg = "sum"'),
            "ops.agg_field must be set when ops.agg is sum|avg|distinct",
        ),
        (changed('agg = "count"', 'agg = "median"'), "unsupported ops.agg: median"),
        (changed('type = "tumbling"', 'type = "sliding"'), "slide must be set for sliding window"),
        (changed('type = "tumbling"', 'type = "session"'), "gap must be set for session window"),
        (changed('type = "tumbling"', 'type = "hopping"'), "unsupported window.type: hopping"),
        (changed('size = "60s"\n', ""), "window.size must be set"),
        (changed('size = "60s"', 'size = "0s"'), "window.size is 0s; expected 1ms or more"),
        (changed('size = "60s"', 'size = "1x"'), "window.size is 1x; expected a time"),
        (changed('size = "60s"', 'size = "1M"'), "window.size is 1M; expected a time"),
        (changed('lateness = "10s"', 'lateness = "-10s"'), "allowed_lateness is -10s; expected"),
        (changed('size = "60s"', 'size = "60s"\nevery = 5'), "window.every applies to windows of"),
        (changed('"count"', '"count"\nagg_field = "x"\naggregates = [{name = "n", agg = "count"}]'),
         "aggregates and agg_field are set"),
        (aggregates('{name = "n", agg = "count"}', '{name = "n", agg = "max", field = "x"}'),
         "ops.aggregates[1].name is n, which is already the name of another field"),
        (aggregates('{name = "window_end_ms", agg = "count"}'), "the name of another field"),
        (changed('size = "60s"', "size = true"), "window.size is True; expected a time"),
        (changed('path = "in.jsonl"', "path = 5"), "source.path is 5; expected a text"),
        (changed('out_dir = "out"', 'out_dir = "out"\nroll_bytes = 0'), "expected 1 or more"),
        (changed('[sink]\nkind = "file"\nout_dir = "out"', ""), "sink must be set"),
        (changed('kind = "file"\nout', "out"), "sink.kind must be set"),
        (changed("[sink]", '[sink]\nid = "mine"'), "unknown key sink.id"),
        (step("operator = 'filter'\npredicate = 'has'"), "unsupported steps[0].predicate: has"),
        (step("operator = 'filter'\npredicate = 'contains'"), "set for the predicate contains"),
        (step("operator = 'map'\nfunction = 'upercase'"), "did you mean 'uppercase'?"),
        (step("operator = 'map'\nfunction = 'nobody'"), "plugin 'nobody' not found"),
        (step("operator = 'map'\nfunction = 'no.such:x'"), "module 'no' not found"),
        (step("operator = 'map'\nfunction = 'json:x'"), "module 'json' has no 'x'"),
        (step("operator = 'fliter'"), "did you mean 'filter'?"),
        (step("operator = 'join'\non = ['a']"), "it belongs into a pipeline of vertices and edges"),
        (step("operator = 'time'"), "time is not a step: it belongs into the table [time]"),
        (step("function = 'reverse'"), "operator must be set"),
        (step("operator = 'http_call'\nurl = 'ftp://h/x'"), "expected http:// or https://"),
        (step("operator = 'http_call'\nurl = 'http://{a}/x'"), "and fields only after it"),
        (step("operator = 'http_call'\nurl = 'http://h/{a b}'"), "must have the form {name}"),
        (step("operator = 'http_call'\nurl = 'http://h'\ntimeout = 0"), "is 0; expected 1ms"),
        (step(LOOKUP.replace("//h", "//u:hunter2@h")), "steps[0].url contains a password; set"),
        (step("operator = 'http_call'\nurl = 'http://u:x@h/'"), "steps[0].url contains a password"),
        (changed(FILE_SOURCE, POSTGRES_SOURCE.replace("//h", "//u:x@h")), "source.url contains"),
        (step(LOOKUP + "timeout = 0"), "steps[0].timeout is 0; expected 1ms or more"),
        (step(LOOKUP + "password = 'hunter2'"), "steps[0].password is a secret; set its location"),
        (step(LOOKUP.replace("key = 'user'", "")), "steps[0].key must be set for lookup"),
        (changed(FILE_SOURCE, POSTGRES_SOURCE + 'password = "hunter2"'), "source.password is a"),
        (changed(FILE_SOURCE, POSTGRES_SOURCE + "start_at = -1"), "is -1; expected 0 or more"),
    ],
)  # fmt: skip
def test_each_problem_is_told_in_its_words(text, message):
    found = problems(text)

    assert len(found) == 1, found
    assert message in found[0]


def test_what_is_wrong_between_keys_is_told_beside_keys_that_are_wrong():
    text = """\
        [source]
        kind = "kafka"
        brokers = "b:9092"
        topic = "t"
        [time]
        allowed_lateness = "soon"
        [window]
        type = "session"
        siez = "5m"
        [ops]
        agg = "sum"
        count_bi = "page"
        [sink]
        kind = "delta"
        out_dir = "out"
        columns = { key = "string" }
        keys = ["page"]
        max_age = "1 week"
    """

    assert [each.partition("; did")[0] for each in problems(text)] == [
        "1:1: source.group_id must be set for kafka source",
        "6:20: time.allowed_lateness is soon; expected a time such as 250ms, 10s, 5m, 1h",
        "7:1: window.gap: gap must be set for session window",
        "9:1: unknown key window.siez",
        "10:1: ops.count_by must be set (e.g., word field)",
        "10:1: ops.agg_field must be set when ops.agg is sum|avg|distinct",
        "12:1: unknown key ops.count_bi",
        "17:9: sink.keys[0] is page, which is not a column",
        "18:11: sink.max_age is 1 week; expected a time such as 250ms, 10s, 5m, 1h",
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('type = "tumbling"\nsize = "60s"', 'type = "sesion"\ngap = "5m"'),
        ('type = "tumbling"\nsize = "60s"', 'type = "session"\ngap = "soon"'),
        ('kind = "file"\nout_dir = "out"', 'kind = "console"\nformat = "tabel"\nrows = 3'),
    ],
)
def test_what_follows_from_a_wrong_key_alone_is_no_news(before, after):
    assert len(problems(changed(before, after))) == 1


def test_an_empty_key_is_as_one_that_is_not_there():
    text = "source: {kind: file, path: in.jsonl, follow: }\nsink: {kind: console, rows: }"
    window = "{size: 1s, aggregates: [{name: n, agg: count, field: }]}"
    vertices = VERTICES.replace("operator: map", "operator: window").replace(
        "to: z}", "to: z, output: }"
    )

    assert problems(text, "yaml") == []
    assert problems(vertices.replace("{function: reverse}", window), "yaml") == []


def test_all_problems_are_told_at_once_where_they_stand():
    text = """\
        [source]
        kind = "file"
        pth = "in.jsonl"

        [window]
        type = "tumblng"
        size = "soon"

        [ops]
        count_by = "word"

        [sink]
          kind = "file"
          colour = [1,
             2]
    """

    assert problems(text) == [
        "1:1: source.path must be set for file source",
        "3:1: unknown key source.pth; did you mean 'path'? known: encoding, epoch_files_max, "
        "fields, follow, format, line_bytes_max, path, recursive, time_field",
        "6:8: unsupported window.type: tumblng; did you mean 'tumbling'? known: count, session, "
        "sliding, tumbling",
        "7:8: window.size is soon; expected a time such as 250ms, 10s, 5m, 1h",
        "14:3: unknown key sink.colour; known: format, path, roll_bytes, roll_ms, timestamp_field",
    ]


VERTICES = """\
vertices:
  - id: a
    operator: source
    connector: {type: generator, properties: {count: 3}}
  - id: m
    operator: map
    config: {function: reverse}
  - id: z
    operator: sink
    connector: {type: console}
edges:
  - {from: a, to: m}
  - {from: m, to: z}
"""


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("operator: map", "operator: mapp", "6:15: unsupported operator: mapp; did you mean 'map'"),
        ("type: console", "type: cnsole", "10:23: unsupported connector type of a sink: cnsole"),
        ("to: m}", "to: n}", "there is no vertex 'n'"),
        ("to: m}", "to: mm}", "12:19: there is no vertex 'mm'; did you mean 'm'?"),
        ("to: m}", "to: m, partition: fwd}", "unsupported edges[0].partition: fwd; did you mean"),
        ("to: m}", "to: m, output: late}", "'a' has no output 'late'"),
        ("  - {from: m, to: z}\n", "", "the output of 'm' is not connected"),
        ("id: m", "id: a", "duplicate id 'a'"),
        ("id: m", "id: m/n", "contains a slash"),
        ("    operator: map\n", "", "operator must be set"),
        ("config: {function", "konfig: {function", "7:5: unknown key vertices[1].konfig"),
        ("count: 3", "count: many", "4:54: vertices[0].connector.properties.count is many"),
        ("    connector: {type: console}\n", "", "connector must be set for the sink 'z'"),
        ("{from: m, to: z}", "{from: z, to: m}", "has no output, but an edge starts there"),
        ("config:", "parallelism: 0\n    config:", "parallelism is 0; expected 1..32768"),
        ("edges:", "source: {kind: console}\nedges:", "must use one of the two forms"),
    ],
)
def test_each_problem_of_vertices_and_edges_is_told(before, after, message):
    found = problems(VERTICES.replace(before, after, 1), "yaml")

    assert any(message in each for each in found), found


@pytest.mark.parametrize(
    ("operator", "config", "message"),
    [
        ("join", "{on: [], upper: 1s}", "config.on is empty"),
        ("join", "{on: [k]}", "config.upper must be set for a join of the type interval"),
        ("join", "{on: [k], type: table, how: full}", "must be inner or left, not full"),
        ("key_by", "{field: a, fields: [b]}", "field and fields are set"),
        ("reduce", "{}", "config.function and agg must be set"),
        ("reduce", "{agg: max}", "agg_field must be set when vertices[1].config.agg is min|max"),
        ("window", "{size: 1s, window_ms: 5}", "size and window_ms are set"),
        ("window", "{type: count}", "records must be set for count window"),
        ("window", "{size: 1, aggregates: [{name: a, agg: sum}]}", "[0].field must be set"),
        ("filter", "{predicate: min_length, value: x}", "is not a whole number"),
        ("filter", "{predicate: exists}", "field must be set for exists"),
        ("filter", "{predicate: equals, function: 'a:b'}", "function and predicate are set"),
        ("rate_limit", "{}", "config.per_second must be set"),
        ("process", "{function: 'json:loads'}", "not a function class for process"),
        ("union", "{}", ""),
    ],
)  # fmt: skip
def test_each_rule_between_keys_is_told(operator, config, message):
    text = VERTICES.replace("operator: map", f"operator: {operator}")
    found = problems(text.replace("{function: reverse}", config), "yaml")

    assert any(message in each for each in found) if message else found == []


def test_edges_in_a_circle_are_refused():
    text = VERTICES.replace("{from: a, to: m}", "{from: m, to: m}")

    assert any("edges form a cycle: 'm'" in each for each in problems(text, "yaml"))


def test_a_text_that_is_no_toml_or_yaml_is_told_with_its_line():
    with raises(PIPELINE_UNREADABLE, match="p.toml:2: invalid TOML"):
        checked("a = 1\nb = [", "toml")
    with raises(PIPELINE_UNREADABLE, match="p.toml:1: .* a value must be a text in quotes"):
        checked("a = page", "toml")
    with raises(PIPELINE_UNREADABLE, match="p.yaml:3: invalid YAML"):
        checked("a: 1\nb: [\n", "yaml")
    with raises(PIPELINE_UNREADABLE, match="duplicate .*'a'"):
        checked("a: 1\na: 2\n", "yaml")
    with raises(PIPELINE_UNREADABLE, match="must be a mapping"):
        checked("- a\n", "yaml")
    with raises(PIPELINE_UNREADABLE, match="refers to itself"):
        checked("a: &x [*x]\n", "yaml")
    with raises(PIPELINE_UNREADABLE, match="tag"):
        checked("a: !!python/object:os.system x\n", "yaml")


def test_an_empty_file_lacks_its_source():
    with raises(PIPELINE_INVALID, match="source must be set"):
        checked("", "yaml")


PARQUET = GOOD.replace('kind = "file"\nout_dir = "out"', 'kind = "parquet"\nout_dir = "out"')
FILE = 'kind = "file"\nout_dir = "out"'
COLUMNS = 'columns = { key = "string" }'
DELTA = GOOD.replace(FILE, f'kind = "delta"\nout_dir = "out"\n{COLUMNS}')
ICEBERG = GOOD.replace(FILE, f'kind = "iceberg"\ncatalog = "c"\nwarehouse = "w"\n{COLUMNS}')
HTTP = GOOD.replace(FILE, 'kind = "http"\nurl = "http://h"')
CONSOLE = GOOD.replace(FILE, 'kind = "console"')
POSTGRES = GOOD.replace(
    'kind = "file"\nout_dir = "out"',
    'kind = "postgres"\nurl = "postgresql://u@h/d"\ntable = "t"\ncolumns = { key = "string" }',
)


@pytest.mark.parametrize(
    ("text", "keys", "message"),
    [
        (
            PARQUET,
            'partition_by = "field"',
            "sink.partition_field: it must be set for folders by field",
        ),
        (
            PARQUET,
            'partition_by = "none"\npartition_format = "%Y"',
            "applies to folders by date, not",
        ),
        (
            PARQUET,
            'partition_by = "none"\npartition_field = "x"',
            "but partition folders are disabled",
        ),
        (
            PARQUET,
            'partition_format = "day"',
            "sink.partition_format: 'day' is not a date format",
        ),
        (PARQUET, 'max_age = "0s"', "sink.max_age is 0s; expected 1ms or more"),
        (PARQUET, 'compression = "lzma"', "unsupported sink.compression: lzma"),
        (PARQUET, 'columns = { key = "text" }', "unsupported sink.columns.key: text"),
        (POSTGRES, 'password = "hunter2"', "sink.password is a secret; set its location"),
        (
            POSTGRES.replace("u@h", "u:hunter2@h"),
            "",
            "sink.url contains a password; set it separately",
        ),
        (HTTP.replace("//h", "//u:hunter2@h"), "", "sink.url contains a password"),
        (
            ICEBERG.replace('"c"', '"postgresql://u:hunter2@h/d"'),
            'table = "a.b"',
            "sink.catalog contains a password",
        ),
        (POSTGRES, 'keys = ["kye"]', "sink.keys[0] is kye, which is not a column"),
        (POSTGRES, 'delete_field = "key"', "sink.keys: delete_field requires an upsert"),
        (DELTA, 'keys = ["kye"]', "sink.keys[0] is kye, which is not a column"),
        (DELTA, 'partition_by = ["x"]', "sink.partition_by[0] is x, which is not a column"),
        (DELTA, 'max_age = "0s"', "sink.max_age is 0s; expected 1ms or more"),
        (ICEBERG, 'table = "clicks"', "sink.table: the table 'clicks' has no namespace"),
        (ICEBERG, 'table = "a.b"\ncatalog_password = "hunter2"', "is a secret; set its location"),
        (HTTP, 'secret_headers = { Authorization = "hunter2" }', "is a secret; set its location"),
        (HTTP, 'body = "object"\nbatch_records = 2', "record requires batch_records=1"),
        (CONSOLE, "rows = 3", "sink.rows: rows applies to the format table"),
        (
            KAFKA_SINK,
            'properties = { "sasl.password" = "hunter2" }',
            "is a secret; set its location",
        ),
    ],
)
def test_each_problem_of_a_sink_is_told_and_no_secret_with_it(text, keys, message):
    found = problems(f"{text}\n{keys}\n")

    assert len(found) == 1, found
    assert message in found[0]
    assert "hunter2" not in found[0]


SESSION = '[window]\ntype = "session"\ngap = "5m"\n[ops]\ncount_by = "k"\n'


@pytest.mark.parametrize(
    ("before", "message"),
    [
        ("", "window.type is session, which needs event time: set the source `timestamp_field`"),
        ("[time]\n", "4:1: 'source' has no event time: set its `timestamp_field`, or `field`"),
        ('[time]\nfield = "at"\n', None),
        ('time_field = "at"\n', None),
    ],
)
def test_windows_that_need_event_time_have_one(before, message):
    source = f'[source]\nkind = "file"\npath = "in"\n{before}'

    found = problems(source + SESSION + '[sink]\nkind = "console"\n')

    assert [message in each for each in found] == ([] if message is None else [True])


UNION = """\
vertices:
  - {id: a, operator: source, connector: {type: collection, properties: {items: [] }}}
  - id: b
    operator: source
    connector: {type: kafka, properties: {brokers: "b:1", topic: t, time_field: when}}
  - {id: u, operator: union}
  - {id: t, operator: time}
  - {id: z, operator: sink, connector: {type: console}}
edges: [{from: a, to: u}, {from: b, to: u}, {from: u, to: t}, {from: t, to: z}]
"""


@pytest.mark.parametrize(
    ("items", "time", "problems_found"),
    [
        ("", "", ["'a' has no event time", "a, b have their event time in different fields"]),
        (", time_field: at", "", ["a, b have their event time in different fields"]),
        (", time_field: at", ", config: {field: at}", []),
        (", time_field: when", "", []),
    ],
)
def test_sources_before_a_union_tell_the_event_time_in_one_field(items, time, problems_found):
    text = UNION.replace("[] }", f"[]{items}}}").replace("operator: time", f"operator: time{time}")

    found = problems(text, "yaml")

    assert len(found) == len(problems_found)
    for message, one in zip(problems_found, found, strict=True):
        assert message in one
        assert one.startswith("7:")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            "{type: sliding, size: 10s, slide: 5s}",
            "config.type is sliding, which needs",
        ),
        ("{size: 10s, offset: 1s}", "config.offset is 1s, which needs event time: set a vertex"),
        ("{size: 10s, keep: 1m}", "config.keep is 1m, which needs event time"),
        ("{size: 10s}", None),
        ("{type: count, records: 5}", None),
    ],
)
def test_so_have_those_of_vertices(config, message):
    text = VERTICES.replace("operator: map", "operator: window")

    found = problems(text.replace("{function: reverse}", config), "yaml")

    assert [message in each for each in found] == ([] if message is None else [True])


def test_a_time_that_is_no_declared_field_is_told():
    text = changed('time_field = "at"', 'time_field = "at"\nfields = { word = "string" }')

    assert "source.time_field is at, which is not a declared field" in problems(text)[0]


def test_columns_of_a_table_are_not_empty():
    text = changed('columns = { key = "string" }', "columns = {}", POSTGRES)

    assert problems(text) == ["18:11: sink.columns is empty"]
