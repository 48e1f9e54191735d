// node-postgres against a server: node node_postgres.js HOST PORT DATABASE USER. Exits non-zero on the first mismatch.
'use strict';

const assert = require('node:assert/strict');
const net = require('node:net');
const { pipeline } = require('node:stream/promises');
const { Readable } = require('node:stream');
// The packages live outside the source tree; NODE_PATH names where.
const { Client, Pool } = require('pg');
const { from: copyFrom, to: copyTo } = require('pg-copy-streams');

const [host, port, database, user] = process.argv.slice(2);
const options = { host, port: Number(port), database, user, connectionTimeoutMillis: 20_000 };
const CLIENTS = 32;

const ok = (what) => console.log('ok', what);
const fails = (code, promise) => assert.rejects(promise, (error) => error.code === code || assert.fail(error));

async function value(client, text, values) {
  const { rows } = await client.query(text, values);
  return Object.values(rows[0])[0];
}

async function connected(extra) {
  const client = new Client({ ...options, ...extra });
  await client.connect();
  return client;
}

async function schema(client) {
  await client.query(`DROP SCHEMA IF EXISTS drv_node CASCADE; CREATE SCHEMA drv_node;
    CREATE TABLE drv_node.t (id int PRIMARY KEY, note text);
    CREATE TABLE drv_node.typed (id int, a int[], j jsonb, at timestamptz, b bytea, n numeric);
    CREATE TABLE drv_node.mine (client int, n int)`);
  ok('schema');
}

async function queries(client) {
  assert.equal(await value(client, 'SELECT 1 AS one'), 1);
  assert.equal(await value(client, 'SELECT $1::int + $2::int AS sum', [40, 2]), 42);
  const both = await client.query("SELECT 'a' AS a; SELECT 'b' AS b");
  assert.deepEqual(both.map((result) => result.rows), [[{ a: 'a' }], [{ b: 'b' }]]);
  const { rows } = await client.query("SELECT i, repeat('x', 500) AS x FROM generate_series(1, 20000) i");
  assert.deepEqual([rows.length, rows[19999].i, rows[0].x.length], [20000, 20000, 500]);
  assert.equal((await client.query('')).rows.length, 0);
  ok('queries');
}

async function prepared(client) {
  for (let i = 0; i < 300; i++) {
    const { rows } = await client.query({ name: 'triple', text: 'SELECT $1::int * 3 AS x', values: [i] });
    assert.equal(rows[0].x, i * 3);
  }
  for (let i = 0; i < 100; i++) {
    const { rows } = await client.query({ name: `text ${i}`, text: `SELECT ${i} + $1::int AS x`, values: [1] });
    assert.equal(rows[0].x, i + 1);
  }
  ok('prepared');
}

async function transactions(client) {
  await client.query('BEGIN');
  await client.query("INSERT INTO drv_node.t VALUES (1, 'kept')");
  assert.equal(await value(client, 'SELECT count(*)::int AS n FROM drv_node.t'), 1);
  await client.query('COMMIT');
  await client.query('BEGIN');
  await client.query("INSERT INTO drv_node.t VALUES (2, 'lost')");
  await client.query('ROLLBACK');
  await client.query('BEGIN');
  await fails('23505', client.query('INSERT INTO drv_node.t VALUES (1)'));
  await fails('25P02', client.query('SELECT 1'));
  assert.equal((await client.query('COMMIT')).command, 'ROLLBACK');
  assert.deepEqual(await value(client, 'SELECT array_agg(id ORDER BY id) AS ids FROM drv_node.t'), [1]);
  ok('transactions');
}

async function readOnly(client) {
  await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY');
  assert.equal(await value(client, 'SELECT count(*)::int AS n FROM generate_series(1, 10)'), 10);
  await fails('25006', client.query("INSERT INTO drv_node.t VALUES (9, 'no')"));
  await client.query('ROLLBACK');
  ok('read only');
}

async function failures(client) {
  await fails('22012', client.query('SELECT 1/0'));
  await fails('22012', client.query('SELECT 1/$1::int', [0]));
  await fails('42P01', client.query('SELECT * FROM no_such_table'));
  await fails('42601', client.query('SELEC 1', []));
  await fails('22P02', client.query('SELECT $1::int', ['x']));
  assert.equal(await value(client, "SELECT 'alive' AS a"), 'alive');
  ok('errors');
}

async function copy(client) {
  const lines = Array.from({ length: 2000 }, (_, i) => `${i + 1000}\t${i % 2 ? '\\N' : `line ${i}`}\n`);
  await pipeline(Readable.from(lines), client.query(copyFrom('COPY drv_node.t FROM STDIN')));
  const out = client.query(copyTo('COPY (SELECT * FROM drv_node.t WHERE id >= 1000 ORDER BY id) TO STDOUT'));
  const chunks = [];
  for await (const chunk of out) chunks.push(chunk);
  assert.equal(Buffer.concat(chunks).toString(), lines.join(''));
  const twice = Array.from({ length: 2000 }, () => `1000\t${'x'.repeat(1000)}\n`);
  await fails('23505', pipeline(Readable.from(twice), client.query(copyFrom('COPY drv_node.t FROM STDIN'))));
  assert.equal(await value(client, 'SELECT 1 AS one'), 1);
  ok('copy');
}

async function types(client) {
  const at = new Date('2024-02-29T12:30:15.123Z');
  const bytes = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
  const row = { id: 7, a: [1, null, 3], j: { k: [1, { ü: null }] }, at, b: bytes, n: '12345.678900' };
  await client.query('INSERT INTO drv_node.typed VALUES ($1, $2, $3, $4, $5, $6)', Object.values(row));
  await client.query('INSERT INTO drv_node.typed (id) VALUES ($1)', [8]);
  const { rows } = await client.query('SELECT * FROM drv_node.typed ORDER BY id');
  assert.deepEqual(rows, [row, { id: 8, a: null, j: null, at: null, b: null, n: null }]);
  const binary = await client.query({ text: 'SELECT $1::int AS i', values: [7], binary: true });
  assert.equal(binary.rows[0].i, 7);
  ok('types');
}

async function queued(client) {
  const answers = await Promise.all(Array.from({ length: 200 }, (_, i) => value(client, 'SELECT $1::int AS i', [i])));
  assert.deepEqual(answers, Array.from({ length: 200 }, (_, i) => i));
  ok('queued');
}

// With the key of the greeting, as the driver keeps it; its own way to send one needs the query's private object.
function cancelRequest({ processID, secretKey }) {
  const request = Buffer.alloc(16);
  [16, 80877102, processID, secretKey].forEach((word, i) => request.writeInt32BE(word, i * 4));
  net.connect(Number(port), host).end(request);
}

async function cancel(client) {
  await client.query("SET statement_timeout = '200ms'");
  await fails('57014', client.query('SELECT pg_sleep(30)'));
  assert.equal(await value(client, 'SHOW statement_timeout'), '200ms');
  await client.query('RESET statement_timeout');
  const sleeping = client.query('SELECT pg_sleep(30)');
  setTimeout(() => cancelRequest(client), 500);
  await fails('57014', sleeping);
  assert.equal(await value(client, 'SELECT 1 AS one'), 1);
  ok('cancel');
}

async function concurrent() {
  const run = async (number) => {
    const client = await connected({ application_name: `client ${number}` });
    for (let i = 0; i < 60; i++) {
      await client.query('INSERT INTO drv_node.mine VALUES ($1, $2)', [number, i]);
      const own = await value(client, 'SELECT count(*)::int AS n FROM drv_node.mine WHERE client = $1', [number]);
      assert.equal(own, i + 1);
    }
    assert.equal(await value(client, 'SHOW application_name'), `client ${number}`);
    for (let i = 0; i < 200; i++) {
      assert.equal(await value(client, 'SELECT $1::int + $2::int AS x', [i, number]), i + number);
    }
    await client.end();
  };
  await Promise.all(Array.from({ length: CLIENTS }, (_, number) => run(number)));
  const pool = new Pool({ ...options, max: 8 });
  const answers = await Promise.all(Array.from({ length: 400 }, (_, i) => value(pool, 'SELECT $1::int AS i', [i])));
  assert.deepEqual(answers, Array.from({ length: 400 }, (_, i) => i));
  await pool.end();
  ok('concurrent');
}

async function notify(client) {
  const listener = await connected();
  const payloads = [];
  const five = new Promise((resolve) => {
    listener.on('notification', ({ payload }) => payloads.push(payload) === 5 && resolve());
  });
  await listener.query('LISTEN drv_node');
  for (let i = 0; i < 5; i++) await client.query("SELECT pg_notify('drv_node', $1)", [String(i)]);
  await five;
  assert.deepEqual(payloads, ['0', '1', '2', '3', '4']);
  await listener.end();
  ok('listen and notify');
}

async function main() {
  const client = await connected();
  for (const step of [schema, queries, prepared, transactions, readOnly, failures, copy, types, queued, cancel]) {
    await step(client);
  }
  await concurrent();
  await notify(client);
  await client.query('DROP SCHEMA drv_node CASCADE');
  await client.end();
  ok('close');
  console.log('done');
}

// A wait that never ends fails too: the wrapper's own limit is longer.
setTimeout(() => assert.fail('not done after 100 s'), 100_000).unref();
main().catch((error) => {
  console.error(error);
  process.exit(1);
});
