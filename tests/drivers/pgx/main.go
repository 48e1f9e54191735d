// pgx against a server: go run main.go HOST PORT DATABASE USER. Exits non-zero on the first mismatch.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgconn"
	"github.com/jackc/pgx/v4"
)

const clients = 32

var (
	ctx    = context.Background()
	source string
)

func connect(extra string) *pgx.Conn {
	conn, err := pgx.Connect(ctx, source+extra)
	must(err)
	return conn
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func equal(got, want interface{}, what string) {
	if !reflect.DeepEqual(got, want) {
		panic(fmt.Sprintf("%s: got %v, want %v", what, got, want))
	}
}

func fails(code string, err error, what string) {
	var server *pgconn.PgError
	if !errors.As(err, &server) || server.Code != code {
		panic(fmt.Sprintf("%s: got %v, want %s", what, err, code))
	}
}

type querier interface {
	QueryRow(context.Context, string, ...interface{}) pgx.Row
}

func number(conn querier, sql string, arguments ...interface{}) (n int) {
	must(conn.QueryRow(ctx, sql, arguments...).Scan(&n))
	return n
}

func text(conn querier, sql string, arguments ...interface{}) (s string) {
	must(conn.QueryRow(ctx, sql, arguments...).Scan(&s))
	return s
}

func exec(conn *pgx.Conn, sql string, arguments ...interface{}) {
	_, err := conn.Exec(ctx, sql, arguments...)
	must(err)
}

func schema(conn *pgx.Conn) {
	exec(conn, `DROP SCHEMA IF EXISTS drv_pgx CASCADE; CREATE SCHEMA drv_pgx;
		CREATE TABLE drv_pgx.t (id int PRIMARY KEY, note text);
		CREATE TABLE drv_pgx.typed (id int, a int[], j jsonb, at timestamptz, b bytea, n numeric);
		CREATE TABLE drv_pgx.mine (client int, n int)`)
}

func queries(conn *pgx.Conn) {
	equal(number(conn, "SELECT 1"), 1, "one")
	equal(number(conn, "SELECT $1::int + $2::int", 40, 2), 42, "parameters")
	rows, err := conn.Query(ctx, "SELECT i, repeat('x', 500) FROM generate_series(1, 20000) i")
	must(err)
	count := 0
	for rows.Next() {
		count++
	}
	must(rows.Err())
	equal(count, 20000, "many rows")

	// The simple protocol with literals inlined by the driver, as behind a pooler that keeps no statements.
	config, err := pgx.ParseConfig(source)
	must(err)
	config.PreferSimpleProtocol = true
	simple, err := pgx.ConnectConfig(ctx, config)
	must(err)
	for i := 0; i < 100; i++ {
		equal(text(simple, "SELECT $1 || $2::text", "it's ", i), fmt.Sprintf("it's %d", i), "inlined")
	}
	must(simple.Close(ctx))
}

func prepared(conn *pgx.Conn) {
	_, err := conn.Prepare(ctx, "triple", "SELECT $1::int * 3")
	must(err)
	for i := 0; i < 300; i++ {
		equal(number(conn, "triple", i), i*3, "prepared")
	}
	for i := 0; i < 600; i++ { // more texts than the driver's cache holds: it deallocates the oldest
		equal(number(conn, fmt.Sprintf("SELECT %d + $1::int", i), 1), i+1, "prepared texts")
	}
	must(conn.Deallocate(ctx, "triple"))
	_, err = conn.Prepare(ctx, "triple", "SELECT $1::int * 4")
	must(err)
	equal(number(conn, "triple", 2), 8, "name used again")

	describing := connect(" statement_cache_mode=describe")
	for i := 0; i < 50; i++ {
		equal(number(describing, "SELECT $1::int + 1", i), i+1, "unnamed statement")
	}
	must(describing.Close(ctx))
}

func transactions(conn *pgx.Conn) {
	tx, err := conn.Begin(ctx)
	must(err)
	_, err = tx.Exec(ctx, "INSERT INTO drv_pgx.t VALUES ($1, $2)", 1, "kept")
	must(err)
	equal(number(tx, "SELECT count(*) FROM drv_pgx.t"), 1, "own write inside")
	must(tx.Commit(ctx))

	tx, err = conn.Begin(ctx)
	must(err)
	_, err = tx.Exec(ctx, "INSERT INTO drv_pgx.t VALUES (2, 'lost')")
	must(err)
	must(tx.Rollback(ctx))

	tx, err = conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.Serializable})
	must(err)
	equal(number(tx, "SELECT count(*) FROM drv_pgx.t"), 1, "read first")
	nested, err := tx.Begin(ctx)
	must(err)
	_, err = nested.Exec(ctx, "INSERT INTO drv_pgx.t VALUES (1)")
	fails("23505", err, "duplicate")
	must(nested.Rollback(ctx))
	_, err = tx.Exec(ctx, "INSERT INTO drv_pgx.t VALUES (4, 'kept')")
	must(err)
	must(tx.Commit(ctx))
	equal(text(conn, "SELECT string_agg(id::text, ',' ORDER BY id) FROM drv_pgx.t"), "1,4", "after")
}

func readOnly(conn *pgx.Conn) {
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly, IsoLevel: pgx.RepeatableRead})
	must(err)
	equal(number(tx, "SELECT count(*) FROM generate_series(1, 10)"), 10, "read only")
	_, err = tx.Exec(ctx, "INSERT INTO drv_pgx.t VALUES (9)")
	fails("25006", err, "write in a read-only transaction")
	must(tx.Rollback(ctx))
}

func failures(conn *pgx.Conn) {
	var ignored int
	fails("22012", conn.QueryRow(ctx, "SELECT 1/0").Scan(&ignored), "division")
	fails("22012", conn.QueryRow(ctx, "SELECT 1/$1::int", 0).Scan(&ignored), "bound division")
	fails("42P01", conn.QueryRow(ctx, "SELECT * FROM no_such_table").Scan(&ignored), "table")
	fails("42601", conn.QueryRow(ctx, "SELEC 1").Scan(&ignored), "syntax")
	equal(text(conn, "SELECT 'alive'"), "alive", "after errors")
}

func copyBoth(conn *pgx.Conn) {
	rows := make([][]interface{}, 2000)
	for i := range rows {
		rows[i] = []interface{}{i + 1000, fmt.Sprintf("line %d", i)}
	}
	copied, err := conn.CopyFrom(ctx, pgx.Identifier{"drv_pgx", "t"}, []string{"id", "note"}, pgx.CopyFromRows(rows))
	must(err)
	equal(copied, int64(2000), "copied in")
	var out bytes.Buffer
	tag, err := conn.PgConn().CopyTo(ctx, &out, "COPY (SELECT * FROM drv_pgx.t WHERE id >= 1000 ORDER BY id) TO STDOUT")
	must(err)
	equal(tag.RowsAffected(), int64(2000), "copied out")
	equal(strings.HasPrefix(out.String(), "1000\tline 0\n1001\tline 1\n"), true, "lines copied out")
	_, err = conn.CopyFrom(ctx, pgx.Identifier{"drv_pgx", "t"}, []string{"id", "note"}, pgx.CopyFromRows(rows))
	fails("23505", err, "copy of duplicates")
	equal(number(conn, "SELECT 1"), 1, "after a failed copy")
}

func types(conn *pgx.Conn) {
	at := time.Date(2024, 2, 29, 12, 30, 15, 123456000, time.UTC)
	raw := make([]byte, 256)
	for i := range raw {
		raw[i] = byte(i)
	}
	document := map[string]interface{}{"k": []interface{}{1.0, "ü", nil}}
	exec(conn, "INSERT INTO drv_pgx.typed VALUES ($1, $2, $3, $4, $5, $6)", 7, []int32{1, 2, 3}, document, at, raw, "12345.678900")
	exec(conn, "INSERT INTO drv_pgx.typed (id) VALUES ($1)", 8)
	var (
		array []int32
		gotAt time.Time
		bytea []byte
		json  map[string]interface{}
		n     string
	)
	row := conn.QueryRow(ctx, "SELECT a, j, at, b, n::text FROM drv_pgx.typed WHERE id = $1", 7)
	must(row.Scan(&array, &json, &gotAt, &bytea, &n))
	equal([]interface{}{array, json, gotAt.UTC(), bytea, n}, []interface{}{[]int32{1, 2, 3}, document, at, raw, "12345.678900"}, "types")
	var absent *time.Time
	must(conn.QueryRow(ctx, "SELECT at FROM drv_pgx.typed WHERE id = $1", 8).Scan(&absent))
	equal(absent == nil, true, "null")
}

func batch(conn *pgx.Conn) {
	queue := &pgx.Batch{}
	for i := 0; i < 200; i++ {
		queue.Queue("SELECT $1::int * 2", i)
	}
	results := conn.SendBatch(ctx, queue)
	for i := 0; i < 200; i++ {
		equal(number(resultRow{results}, ""), i*2, "batch")
	}
	must(results.Close())

	queue = &pgx.Batch{}
	queue.Queue("INSERT INTO drv_pgx.t VALUES ($1, 'batch')", 6000)
	queue.Queue("SELECT 1/$1::int", 0)
	queue.Queue("INSERT INTO drv_pgx.t VALUES ($1, 'batch')", 6001)
	fails("22012", conn.SendBatch(ctx, queue).Close(), "batch with an error")
	equal(number(conn, "SELECT count(*) FROM drv_pgx.t WHERE note = 'batch'"), 0, "batches are atomic")
}

// resultRow lets number read the next row of a batch.
type resultRow struct{ results pgx.BatchResults }

func (r resultRow) QueryRow(context.Context, string, ...interface{}) pgx.Row {
	return r.results.QueryRow()
}

func cancel(conn *pgx.Conn) {
	timer := time.AfterFunc(500*time.Millisecond, func() { must(conn.PgConn().CancelRequest(ctx)) })
	_, err := conn.Exec(ctx, "SELECT pg_sleep(30)")
	fails("57014", err, "cancel")
	timer.Stop()
	exec(conn, "SET statement_timeout = '200ms'")
	_, err = conn.Exec(ctx, "SELECT pg_sleep(30)")
	fails("57014", err, "statement_timeout")
	equal(text(conn, "SHOW statement_timeout"), "200ms", "setting kept")
	exec(conn, "RESET statement_timeout")

	// A context's deadline makes the driver cut the connection in the middle of a statement.
	cut := connect("")
	short, stop := context.WithTimeout(ctx, 300*time.Millisecond)
	defer stop()
	if _, err := cut.Exec(short, "SELECT pg_sleep(5)"); !errors.Is(err, context.DeadlineExceeded) {
		panic(fmt.Sprintf("deadline: got %v", err))
	}
	equal(number(conn, "SELECT 1"), 1, "after a cancel")
}

func client(id int) {
	conn := connect(fmt.Sprintf(" application_name=client%d", id))
	for i := 0; i < 60; i++ {
		exec(conn, "INSERT INTO drv_pgx.mine VALUES ($1, $2)", id, i)
		equal(number(conn, "SELECT count(*) FROM drv_pgx.mine WHERE client = $1", id), i+1, "own writes")
	}
	equal(text(conn, "SHOW application_name"), fmt.Sprintf("client%d", id), "own setting")
	for i := 0; i < 200; i++ {
		equal(number(conn, "SELECT $1::int + $2::int", i, id), i+id, "reads")
	}
	must(conn.Close(ctx))
}

func concurrent(*pgx.Conn) {
	var group sync.WaitGroup
	for i := 0; i < clients; i++ {
		group.Add(1)
		go func(id int) {
			defer group.Done()
			client(id)
		}(i)
	}
	group.Wait()
}

func listen(conn *pgx.Conn) {
	listener := connect("")
	exec(listener, "LISTEN drv_pgx")
	for i := 0; i < 5; i++ {
		exec(conn, "SELECT pg_notify('drv_pgx', $1)", fmt.Sprint(i))
	}
	limit, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	for i := 0; i < 5; i++ {
		event, err := listener.WaitForNotification(limit)
		must(err)
		equal(event.Payload, fmt.Sprint(i), "notification")
	}
	must(listener.Close(ctx))
}

func main() {
	source = fmt.Sprintf("host=%s port=%s dbname=%s user=%s sslmode=disable connect_timeout=20",
		os.Args[1], os.Args[2], os.Args[3], os.Args[4])
	conn := connect("")
	steps := []struct {
		name string
		run  func(*pgx.Conn)
	}{
		{"schema", schema}, {"queries", queries}, {"prepared", prepared}, {"transactions", transactions},
		{"read only", readOnly}, {"errors", failures}, {"copy", copyBoth}, {"types", types}, {"batch", batch},
		{"cancel", cancel}, {"concurrent", concurrent}, {"listen and notify", listen},
	}
	for _, step := range steps {
		step.run(conn)
		fmt.Println("ok", step.name)
	}
	exec(conn, "DROP SCHEMA drv_pgx CASCADE")
	must(conn.Close(ctx))
	fmt.Println("ok close")
	fmt.Println("done")
}
