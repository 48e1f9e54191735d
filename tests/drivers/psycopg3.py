"""psycopg 3 against a server: python psycopg3.py HOST PORT DATABASE USER. Exits non-zero on the first mismatch."""

import datetime
import decimal
import sys
import threading

import psycopg
from psycopg import errors
from psycopg.types.json import Jsonb

HOST, PORT, DATABASE, USER = sys.argv[1:5]
CLIENTS = 32


def connect(**options):
    return psycopg.connect(host=HOST, port=PORT, dbname=DATABASE, user=USER, connect_timeout=20, **options)


def equal(got, want, what):
    if got != want:
        raise SystemExit(f"{what}: got {got!r}, want {want!r}")


def fails(error, action, what):
    try:
        action()
    except error:
        return
    raise SystemExit(f"{what}: no {error.__name__}")


def ok(what):
    print("ok", what, flush=True)


def schema(conn):
    conn.execute("DROP SCHEMA IF EXISTS drv_psycopg CASCADE")
    conn.execute("CREATE SCHEMA drv_psycopg")
    conn.execute("CREATE TABLE drv_psycopg.t (id int PRIMARY KEY, note text)")
    conn.execute("CREATE TABLE drv_psycopg.typed (id int, a int[], j jsonb, at timestamptz, b bytea, n numeric)")
    conn.execute("CREATE TABLE drv_psycopg.mine (client int, n int)")
    ok("schema")


def queries(conn):
    equal(conn.execute("SELECT 1").fetchone(), (1,), "simple")
    equal(conn.execute("SELECT %s::int + %s", (40, 2)).fetchone(), (42,), "parameters")
    equal(conn.execute("SELECT %b::int8 * 2", (21,), binary=True).fetchone(), (42,), "binary")
    rows = conn.execute("SELECT i, repeat('x', 500) FROM generate_series(1, 20000) i").fetchall()
    equal((len(rows), rows[-1][0], len(rows[0][1])), (20000, 20000, 500), "many rows")
    equal(psycopg.ClientCursor(conn).execute("SELECT 'a'; SELECT 'b'").nextset(), True, "two statements")
    ok("queries")


def prepared(conn):
    for i in range(300):
        equal(conn.execute("SELECT %s::int * 3", (i,), prepare=True).fetchone(), (i * 3,), "prepared")
    for i in range(150):  # more texts than the driver keeps: it deallocates the oldest
        equal(conn.execute(f"SELECT {i} + %s::int", (1,), prepare=True).fetchone(), (i + 1,), "prepared texts")
    ok("prepared")


def transactions(conn):
    with conn.transaction():
        conn.execute("INSERT INTO drv_psycopg.t VALUES (1, 'kept')")
        equal(conn.execute("SELECT count(*) FROM drv_psycopg.t").fetchone(), (1,), "own write inside")
    try:
        with conn.transaction():
            conn.execute("INSERT INTO drv_psycopg.t VALUES (2, 'lost')")
            raise KeyError
    except KeyError:
        pass
    with conn.transaction():
        with conn.transaction(force_rollback=True):
            conn.execute("INSERT INTO drv_psycopg.t VALUES (3, 'savepoint')")
        conn.execute("INSERT INTO drv_psycopg.t VALUES (4, 'kept')")
    equal(conn.execute("SELECT array_agg(id ORDER BY id) FROM drv_psycopg.t").fetchone(), ([1, 4],), "after")
    ok("transactions")


def read_only():
    with connect() as conn:
        conn.read_only = True
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        equal(conn.execute("SELECT count(*) FROM generate_series(1, 10)").fetchone(), (10,), "read only")
        fails(
            errors.ReadOnlySqlTransaction,
            lambda: conn.execute("INSERT INTO drv_psycopg.t VALUES (9, 'no')"),
            "write in a read-only transaction",
        )
        conn.rollback()
        with conn.cursor("held", binary=True) as cursor:
            cursor.itersize = 100
            cursor.execute("SELECT * FROM generate_series(1, 1000)")
            equal(sum(row[0] for row in cursor), 500500, "server-side cursor")
        conn.commit()
    ok("read only")


def failures(conn):
    fails(errors.DivisionByZero, lambda: conn.execute("SELECT 1/0"), "division")
    fails(errors.UndefinedTable, lambda: conn.execute("SELECT * FROM no_such_table"), "table")
    fails(errors.SyntaxError, lambda: conn.execute("SELEC 1"), "syntax")
    fails(errors.UniqueViolation, lambda: conn.execute("INSERT INTO drv_psycopg.t VALUES (%s)", (1,)), "unique")
    fails(errors.DivisionByZero, lambda: conn.execute("SELECT 1/%s::int", (0,), prepare=True), "bound")
    equal(conn.execute("SELECT 'alive'").fetchone(), ("alive",), "after errors")
    ok("errors")


def copy(conn):
    with conn.cursor() as cursor:
        with cursor.copy("COPY drv_psycopg.t FROM STDIN") as copy:
            for i in range(1000, 3000):
                copy.write_row((i, None if i % 2 else f"tab\tline\n{i}"))
        equal(cursor.rowcount, 2000, "rows copied in")
        with cursor.copy("COPY (SELECT * FROM drv_psycopg.t WHERE id >= 1000 ORDER BY id) TO STDOUT") as copy:
            copy.set_types(["int4", "text"])
            rows = list(copy.rows())
        equal((len(rows), rows[0], rows[1]), (2000, (1000, "tab\tline\n1000"), (1001, None)), "rows copied out")

        def duplicate():
            with cursor.copy("COPY drv_psycopg.t FROM STDIN") as copy:
                for _ in range(2000):
                    copy.write_row((1000, "x" * 1000))

        fails(errors.UniqueViolation, duplicate, "copy of a duplicate")
        equal(cursor.execute("SELECT 1").fetchone(), (1,), "after a failed copy")
    ok("copy")


def types(conn):
    at = datetime.datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=datetime.timezone.utc)
    row = (7, [1, None, 3], Jsonb({"k": [1, {"ü": None}]}), at, bytes(range(256)), decimal.Decimal("12345.678900"))
    conn.execute("INSERT INTO drv_psycopg.typed VALUES (%s, %s, %s, %s, %s, %s)", row)
    conn.execute("INSERT INTO drv_psycopg.typed VALUES (%s, NULL, NULL, NULL, NULL, NULL)", (8,))
    want = row[:2] + (row[2].obj,) + row[3:]
    for binary in (False, True):
        got = conn.execute("SELECT * FROM drv_psycopg.typed ORDER BY id", binary=binary).fetchall()
        equal(got, [want, (8,) + (None,) * 5], f"types, binary={binary}")
    ok("types")


def pipeline(conn):
    with conn.pipeline():
        cursors = [conn.execute("SELECT %s::int", (i,)) for i in range(200)]
        equal([cursor.fetchone()[0] for cursor in cursors], list(range(200)), "pipeline")
    with conn.pipeline() as pipe:
        first = conn.execute("INSERT INTO drv_psycopg.t VALUES (%s, 'pipe')", (50,))
        pipe.sync()
        fails(errors.UniqueViolation, lambda: (conn.execute("INSERT INTO drv_psycopg.t VALUES (50)"), pipe.sync()), "sync")
        equal(first.rowcount, 1, "pipelined insert")
    equal(conn.execute("SELECT note FROM drv_psycopg.t WHERE id = 50").fetchone(), ("pipe",), "after a pipeline")
    ok("pipeline")


def cancel(conn):
    timer = threading.Timer(0.5, conn.cancel)
    timer.start()
    fails(errors.QueryCanceled, lambda: conn.execute("SELECT pg_sleep(30)"), "cancel")
    timer.join()
    conn.execute("SET statement_timeout = '200ms'")
    fails(errors.QueryCanceled, lambda: conn.execute("SELECT pg_sleep(30)"), "statement_timeout")
    equal(conn.execute("SHOW statement_timeout").fetchone(), ("200ms",), "setting kept")
    conn.execute("RESET statement_timeout")
    equal(conn.execute("SELECT 1").fetchone(), (1,), "after a cancel")
    ok("cancel")


def concurrent():
    wrong = []

    def client(number):
        try:
            with connect(autocommit=True, application_name=f"client {number}") as conn:
                for i in range(60):
                    conn.execute("INSERT INTO drv_psycopg.mine VALUES (%s, %s)", (number, i))
                    own = conn.execute("SELECT count(*) FROM drv_psycopg.mine WHERE client = %s", (number,))
                    equal(own.fetchone(), (i + 1,), "own writes")
                equal(conn.execute("SHOW application_name").fetchone(), (f"client {number}",), "own setting")
                for i in range(200):
                    equal(conn.execute("SELECT %s::int + %s", (i, number)).fetchone(), (i + number,), "reads")
        except BaseException as error:  # noqa: BLE001 -- also SystemExit: the main thread reports it
            wrong.append(error)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(wrong, [], "concurrent clients")
    ok("concurrent")


def notify(conn):
    with connect(autocommit=True) as listener:
        listener.execute("LISTEN drv_psycopg")
        for i in range(5):
            conn.execute("SELECT pg_notify('drv_psycopg', %s)", (str(i),))
        got = [event.payload for event in listener.notifies(timeout=20, stop_after=5)]
        equal(got, ["0", "1", "2", "3", "4"], "notifications")
        listener.execute("UNLISTEN *")
    ok("listen and notify")


with connect(autocommit=True) as connection:
    schema(connection)
    queries(connection)
    prepared(connection)
    transactions(connection)
    read_only()
    failures(connection)
    copy(connection)
    types(connection)
    pipeline(connection)
    cancel(connection)
    concurrent()
    notify(connection)
    connection.execute("DROP SCHEMA drv_psycopg CASCADE")
print("done", flush=True)
