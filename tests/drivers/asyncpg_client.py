"""asyncpg against a server: python asyncpg_client.py HOST PORT DATABASE USER. Exits non-zero on the first mismatch."""

import asyncio
import datetime
import decimal
import io
import json
import sys

import asyncpg

HOST, PORT, DATABASE, USER = sys.argv[1:5]
CLIENTS = 32


def connect(**options):
    return asyncpg.connect(host=HOST, port=int(PORT), database=DATABASE, user=USER, timeout=20, **options)


def equal(got, want, what):
    if got != want:
        raise SystemExit(f"{what}: got {got!r}, want {want!r}")


async def fails(error, action, what):
    try:
        await action
    except error:
        return
    raise SystemExit(f"{what}: no {error.__name__}")


def ok(what):
    print("ok", what, flush=True)


async def schema(conn):
    await conn.execute(
        "DROP SCHEMA IF EXISTS drv_asyncpg CASCADE; CREATE SCHEMA drv_asyncpg;"
        "CREATE TABLE drv_asyncpg.t (id int PRIMARY KEY, note text);"
        "CREATE TYPE drv_asyncpg.pair AS (x int, y text); CREATE TYPE drv_asyncpg.mood AS ENUM ('glad', 'sad');"
        "CREATE TABLE drv_asyncpg.typed (id int, a int[], j jsonb, at timestamptz, b bytea, n numeric,"
        " p drv_asyncpg.pair, m drv_asyncpg.mood[]);"
        "CREATE TABLE drv_asyncpg.mine (client int, n int)"
    )
    ok("schema")


async def queries(conn):
    equal(await conn.fetchval("SELECT 1"), 1, "simple")
    equal(await conn.fetchval("SELECT $1::int + $2", 40, 2), 42, "parameters")
    equal(await conn.execute("SELECT 1; SELECT 2"), "SELECT 1", "several statements")
    rows = await conn.fetch("SELECT i, repeat('x', 500) AS x FROM generate_series(1, 20000) i")
    equal((len(rows), rows[-1]["i"]), (20000, 20000), "many rows")
    ok("queries")


async def prepared(conn):
    statement = await conn.prepare("SELECT $1::int * 3")
    for i in range(300):
        equal(await statement.fetchval(i), i * 3, "prepared")
    for i in range(250):  # more texts than the driver's cache holds: it closes the oldest
        equal(await conn.fetchval(f"SELECT {i} + $1::int", 1), i + 1, "prepared texts")
    equal(await statement.fetchval(5), 15, "an early statement, late")
    ok("prepared")


async def transactions(conn):
    async with conn.transaction():
        await conn.execute("INSERT INTO drv_asyncpg.t VALUES ($1, $2)", 1, "kept")
        equal(await conn.fetchval("SELECT count(*) FROM drv_asyncpg.t"), 1, "own write inside")
    try:
        async with conn.transaction():
            await conn.execute("INSERT INTO drv_asyncpg.t VALUES (2, 'lost')")
            raise KeyError
    except KeyError:
        pass
    async with conn.transaction():
        try:
            async with conn.transaction():
                await conn.execute("INSERT INTO drv_asyncpg.t VALUES (1, 'duplicate')")
        except asyncpg.UniqueViolationError:
            pass
        await conn.execute("INSERT INTO drv_asyncpg.t VALUES (4, 'kept')")
    equal(await conn.fetchval("SELECT array_agg(id ORDER BY id) FROM drv_asyncpg.t"), [1, 4], "after")
    ok("transactions")


async def read_only(conn):
    async with conn.transaction(readonly=True, isolation="repeatable_read"):
        cursor = await conn.cursor("SELECT * FROM generate_series(1, 1000)")
        equal(len(await cursor.fetch(300)), 300, "portal")
        equal(len(await cursor.fetch(900)), 700, "portal, rest")
    transaction = conn.transaction(readonly=True)
    await transaction.start()
    await fails(
        asyncpg.ReadOnlySQLTransactionError,
        conn.execute("INSERT INTO drv_asyncpg.t VALUES (9, 'no')"),
        "write in a read-only transaction",
    )
    await transaction.rollback()
    ok("read only")


async def failures(conn):
    await fails(asyncpg.DivisionByZeroError, conn.execute("SELECT 1/0"), "division")
    await fails(asyncpg.DivisionByZeroError, conn.fetch("SELECT 1/$1::int", 0), "bound division")
    await fails(asyncpg.UndefinedTableError, conn.fetch("SELECT * FROM no_such_table"), "table")
    await fails(asyncpg.PostgresSyntaxError, conn.fetch("SELEC 1"), "syntax")
    await fails(asyncpg.UniqueViolationError, conn.execute("INSERT INTO drv_asyncpg.t VALUES ($1)", 1), "unique")
    equal(await conn.fetchval("SELECT 'alive'"), "alive", "after errors")
    ok("errors")


async def changed_result(conn):
    await conn.execute("CREATE TABLE drv_asyncpg.grows (a int); INSERT INTO drv_asyncpg.grows VALUES (1)")
    equal(len(await conn.fetchrow("SELECT * FROM drv_asyncpg.grows")), 1, "before ALTER TABLE")
    await conn.execute("ALTER TABLE drv_asyncpg.grows ADD b int DEFAULT 2")
    # The driver answers 0A000 "cached plan must not change result type" by preparing again.
    equal(tuple(await conn.fetchrow("SELECT * FROM drv_asyncpg.grows")), (1, 2), "after ALTER TABLE")
    ok("changed result type")


async def copy(conn):
    records = [(i, None if i % 2 else f"tab\tline\n{i}") for i in range(1000, 3000)]
    tag = await conn.copy_records_to_table("t", schema_name="drv_asyncpg", records=records)
    equal(tag, "COPY 2000", "rows copied in")
    out = io.BytesIO()
    tag = await conn.copy_from_query("SELECT id FROM drv_asyncpg.t WHERE id >= $1 ORDER BY id", 1000, output=out)
    equal((tag, out.getvalue().split()[:2]), ("COPY 2000", [b"1000", b"1001"]), "rows copied out")
    duplicates = [(1000, "x" * 1000)] * 2000
    await fails(
        asyncpg.UniqueViolationError,
        conn.copy_records_to_table("t", schema_name="drv_asyncpg", records=duplicates),
        "copy of a duplicate",
    )
    equal(await conn.fetchval("SELECT 1"), 1, "after a failed copy")
    ok("copy")


async def types(conn):
    at = datetime.datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=datetime.timezone.utc)
    document = {"k": [1, {"ü": None}]}
    row = (7, [1, None, 3], json.dumps(document), at, bytes(range(256)), decimal.Decimal("12345.678900"))
    await conn.execute(
        "INSERT INTO drv_asyncpg.typed VALUES ($1, $2, $3, $4, $5, $6, $7, $8)", *row, (1, "y"), ["glad", "sad"]
    )
    await conn.execute("INSERT INTO drv_asyncpg.typed (id) VALUES ($1)", 8)
    first, second = await conn.fetch("SELECT * FROM drv_asyncpg.typed ORDER BY id")
    equal(json.loads(first["j"]), document, "json")
    equal((first["id"], first["a"], first["at"], first["b"], first["n"]), row[:2] + row[3:], "types")
    equal((tuple(first["p"]), first["m"]), ((1, "y"), ["glad", "sad"]), "composite and enum")
    equal(tuple(second), (8,) + (None,) * 7, "nulls")
    ok("types")


async def batch(conn):
    await conn.executemany("INSERT INTO drv_asyncpg.t VALUES ($1, $2)", [(i, "batch") for i in range(5000, 5500)])
    equal(await conn.fetchval("SELECT count(*) FROM drv_asyncpg.t WHERE note = 'batch'"), 500, "batch")
    await fails(
        asyncpg.UniqueViolationError,
        conn.executemany("INSERT INTO drv_asyncpg.t VALUES ($1)", [(6000,), (5000,), (6001,)]),
        "batch with a duplicate",
    )
    equal(await conn.fetchval("SELECT count(*) FROM drv_asyncpg.t WHERE id >= 6000"), 0, "batches are atomic")
    ok("batch")


async def cancel(conn):
    await fails(asyncio.TimeoutError, conn.execute("SELECT pg_sleep(30)", timeout=0.3), "timeout")
    equal(await conn.fetchval("SELECT 1"), 1, "after a cancel")
    await conn.execute("SET statement_timeout = '200ms'")
    await fails(asyncpg.QueryCanceledError, conn.execute("SELECT pg_sleep(30)"), "statement_timeout")
    equal(await conn.fetchval("SHOW statement_timeout"), "200ms", "setting kept")
    await conn.reset()
    equal(await conn.fetchval("SHOW statement_timeout"), "0", "setting after reset")
    ok("cancel")


async def concurrent():
    async def client(number):
        conn = await connect(server_settings={"application_name": f"client {number}"})
        for i in range(60):
            await conn.execute("INSERT INTO drv_asyncpg.mine VALUES ($1, $2)", number, i)
            own = await conn.fetchval("SELECT count(*) FROM drv_asyncpg.mine WHERE client = $1", number)
            equal(own, i + 1, "own writes")
        equal(await conn.fetchval("SHOW application_name"), f"client {number}", "own setting")
        for i in range(200):
            equal(await conn.fetchval("SELECT $1::int + $2::int", i, number), i + number, "reads")
        await conn.close()

    await asyncio.gather(*(client(number) for number in range(CLIENTS)))
    async with asyncpg.create_pool(
        host=HOST, port=int(PORT), database=DATABASE, user=USER, min_size=4, max_size=8
    ) as pool:
        got = await asyncio.gather(*(pool.fetchval("SELECT $1::int", i) for i in range(400)))
        equal(got, list(range(400)), "pool")
    ok("concurrent")


async def notify(conn):
    events = asyncio.Queue(maxsize=16)
    listener = await connect()
    await listener.add_listener("drv_asyncpg", lambda *event: events.put_nowait(event[-1]))
    for i in range(5):
        await conn.execute("SELECT pg_notify('drv_asyncpg', $1)", str(i))
    got = [await asyncio.wait_for(events.get(), 20) for _ in range(5)]
    equal(got, ["0", "1", "2", "3", "4"], "notifications")
    await listener.close()
    ok("listen and notify")


async def main():
    conn = await connect()
    await schema(conn)
    await queries(conn)
    await prepared(conn)
    await transactions(conn)
    await read_only(conn)
    await failures(conn)
    await changed_result(conn)
    await copy(conn)
    await types(conn)
    await batch(conn)
    await cancel(conn)
    await concurrent()
    await notify(conn)
    await conn.execute("DROP SCHEMA drv_asyncpg CASCADE")
    await conn.close()
    print("done", flush=True)


asyncio.run(main())
