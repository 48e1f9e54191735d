// The JDBC driver against a server: java -cp postgresql.jar Jdbc.java HOST PORT DATABASE USER. Exits non-zero on the
// first mismatch.

import java.io.ByteArrayOutputStream;
import java.io.StringReader;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.sql.BatchUpdateException;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.postgresql.PGConnection;
import org.postgresql.PGNotification;

public final class Jdbc {
    private static final int CLIENTS = 32;
    private static String url;
    private static String user;

    interface Action {
        void run() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        url = "jdbc:postgresql://" + args[0] + ":" + args[1] + "/" + args[2];
        user = args[3];
        try (Connection conn = connect("")) {
            schema(conn);
            queries(conn);
            prepared(conn);
            transactions(conn);
            readOnly();
            failures(conn);
            copy(conn);
            types(conn);
            batch(conn);
            cancel(conn);
            concurrent();
            listen(conn);
            execute(conn, "DROP SCHEMA drv_jdbc CASCADE");
        }
        ok("close");
        System.out.println("done");
    }

    private static Connection connect(String options) throws SQLException {
        Properties properties = new Properties();
        properties.setProperty("user", user);
        properties.setProperty("connectTimeout", "20");
        properties.setProperty("socketTimeout", "60");
        return DriverManager.getConnection(url + "?" + options, properties);
    }

    private static void ok(String what) {
        System.out.println("ok " + what);
    }

    private static void equal(Object got, Object want, String what) {
        if (!Objects.deepEquals(got, want)) {
            throw new AssertionError(what + ": got " + got + ", want " + want);
        }
    }

    private static void fails(String state, Action action, String what) throws Exception {
        try {
            action.run();
        } catch (SQLException error) {
            equal(error.getSQLState(), state, what + " (" + error.getMessage() + ")");
            return;
        }
        throw new AssertionError(what + ": no error");
    }

    private static void execute(Connection conn, String sql) throws SQLException {
        try (Statement statement = conn.createStatement()) {
            statement.execute(sql);
        }
    }

    private static Object value(Connection conn, String sql, Object... parameters) throws SQLException {
        try (PreparedStatement statement = conn.prepareStatement(sql)) {
            for (int i = 0; i < parameters.length; i++) {
                statement.setObject(i + 1, parameters[i]);
            }
            try (ResultSet rows = statement.executeQuery()) {
                rows.next();
                return rows.getObject(1);
            }
        }
    }

    private static void schema(Connection conn) throws SQLException {
        execute(conn, "DROP SCHEMA IF EXISTS drv_jdbc CASCADE; CREATE SCHEMA drv_jdbc;"
            + "CREATE TABLE drv_jdbc.t (id int PRIMARY KEY, note text);"
            + "CREATE TABLE drv_jdbc.typed (id int, a int[], j jsonb, at timestamptz, b bytea, n numeric);"
            + "CREATE TABLE drv_jdbc.mine (client int, n int)");
        ok("schema");
    }

    private static void queries(Connection conn) throws Exception {
        equal(value(conn, "SELECT 1"), 1, "one");
        equal(value(conn, "SELECT ?::int + ?", 40, 2), 42, "parameters");
        try (Statement statement = conn.createStatement();
            ResultSet rows = statement.executeQuery("SELECT i, repeat('x', 500) FROM generate_series(1, 20000) i")) {
            int count = 0;
            while (rows.next()) {
                equal(rows.getInt(1), ++count, "row");
            }
            equal(count, 20000, "many rows");
        }
        try (Connection simple = connect("preferQueryMode=simple")) {
            equal(value(simple, "SELECT ?::int + ?", 40, 2), 42, "simple protocol");
        }
        ok("queries");
    }

    private static void prepared(Connection conn) throws Exception {
        // From the fifth execution on the driver uses a named statement, and then binary results.
        try (PreparedStatement statement = conn.prepareStatement("SELECT ?::int * 3")) {
            for (int i = 0; i < 300; i++) {
                statement.setInt(1, i);
                try (ResultSet rows = statement.executeQuery()) {
                    rows.next();
                    equal(rows.getInt(1), i * 3, "prepared");
                }
            }
        }
        // More texts than the driver's cache holds: it closes the oldest.
        try (Connection eager = connect("prepareThreshold=1&preparedStatementCacheQueries=20")) {
            for (int i = 0; i < 100; i++) {
                equal(value(eager, "SELECT " + i + " + ?::int", 1), i + 1, "prepared texts");
                equal(value(eager, "SELECT 7 + ?::int", 1), 8, "prepared text, again");
            }
        }
        ok("prepared");
    }

    private static void transactions(Connection conn) throws Exception {
        conn.setAutoCommit(false);
        execute(conn, "INSERT INTO drv_jdbc.t VALUES (1, 'kept')");
        equal(value(conn, "SELECT count(*) FROM drv_jdbc.t"), 1L, "own write inside");
        conn.commit();
        execute(conn, "INSERT INTO drv_jdbc.t VALUES (2, 'lost')");
        conn.rollback();
        // A read first, the write later: all of it belongs on the primary.
        equal(value(conn, "SELECT count(*) FROM drv_jdbc.t"), 1L, "read first");
        execute(conn, "UPDATE drv_jdbc.t SET note = 'changed' WHERE id = 1");
        java.sql.Savepoint savepoint = conn.setSavepoint();
        fails("23505", () -> execute(conn, "INSERT INTO drv_jdbc.t VALUES (1)"), "duplicate");
        fails("25P02", () -> execute(conn, "SELECT 1"), "failed transaction");
        conn.rollback(savepoint);
        execute(conn, "INSERT INTO drv_jdbc.t VALUES (4, 'kept')");
        conn.commit();
        conn.setAutoCommit(true);
        equal(value(conn, "SELECT string_agg(id || note, ',' ORDER BY id) FROM drv_jdbc.t"), "1changed,4kept", "after");
        ok("transactions");
    }

    private static void readOnly() throws Exception {
        try (Connection conn = connect("readOnlyMode=always")) {
            conn.setReadOnly(true);
            equal(value(conn, "SELECT 1"), 1, "read only, autocommit");
            fails("25006", () -> execute(conn, "INSERT INTO drv_jdbc.t VALUES (9)"), "write, read only, autocommit");
            conn.setReadOnly(false);
            execute(conn, "INSERT INTO drv_jdbc.t VALUES (9)");
            conn.setReadOnly(true);
            conn.setAutoCommit(false);
            try (Statement statement = conn.createStatement()) {
                statement.setFetchSize(100);
                long sum = 0;
                try (ResultSet rows = statement.executeQuery("SELECT * FROM generate_series(1, 1000)")) {
                    while (rows.next()) {
                        sum += rows.getInt(1);
                    }
                }
                equal(sum, 500500L, "portal read in parts");
            }
            fails("25006", () -> execute(conn, "INSERT INTO drv_jdbc.t VALUES (10)"), "write, read only");
            conn.rollback();
        }
        ok("read only");
    }

    private static void failures(Connection conn) throws Exception {
        fails("22012", () -> value(conn, "SELECT 1/0"), "division");
        fails("22012", () -> value(conn, "SELECT 1/?::int", 0), "bound division");
        fails("42P01", () -> value(conn, "SELECT * FROM no_such_table"), "table");
        fails("42601", () -> value(conn, "SELEC 1"), "syntax");
        equal(value(conn, "SELECT 'alive'"), "alive", "after errors");
        ok("errors");
    }

    private static void copy(Connection conn) throws Exception {
        StringBuilder lines = new StringBuilder();
        for (int i = 1000; i < 3000; i++) {
            lines.append(i).append('\t').append(i % 2 == 0 ? "line " + i : "\\N").append('\n');
        }
        var manager = conn.unwrap(PGConnection.class).getCopyAPI();
        equal(manager.copyIn("COPY drv_jdbc.t FROM STDIN", new StringReader(lines.toString())), 2000L, "copied in");
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        manager.copyOut("COPY (SELECT * FROM drv_jdbc.t WHERE id >= 1000 ORDER BY id) TO STDOUT", out);
        equal(out.toString(StandardCharsets.UTF_8), lines.toString(), "copied out");
        String twice = ("1000\t" + "x".repeat(1000) + "\n").repeat(2000);
        fails("23505", () -> manager.copyIn("COPY drv_jdbc.t FROM STDIN", new StringReader(twice)), "duplicate");
        equal(value(conn, "SELECT 1"), 1, "after a failed copy");
        ok("copy");
    }

    private static void types(Connection conn) throws Exception {
        OffsetDateTime at = OffsetDateTime.of(2024, 2, 29, 12, 30, 15, 123456000, ZoneOffset.UTC);
        byte[] bytes = new byte[256];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) i;
        }
        try (PreparedStatement insert =
            conn.prepareStatement("INSERT INTO drv_jdbc.typed VALUES (?, ?, ?::jsonb, ?, ?, ?)")) {
            insert.setInt(1, 7);
            insert.setArray(2, conn.createArrayOf("int4", new Integer[] {1, null, 3}));
            insert.setString(3, "{\"k\": [1, {\"ü\": null}]}");
            insert.setObject(4, at);
            insert.setBytes(5, bytes);
            insert.setBigDecimal(6, new BigDecimal("12345.678900"));
            equal(insert.executeUpdate(), 1, "inserted");
        }
        execute(conn, "INSERT INTO drv_jdbc.typed (id) VALUES (8)");
        try (PreparedStatement select = conn.prepareStatement("SELECT * FROM drv_jdbc.typed ORDER BY id")) {
            for (int i = 0; i < 10; i++) { // text at first, binary later
                checkTypes(select, at, bytes);
            }
        }
        ok("types");
    }

    private static void checkTypes(PreparedStatement select, OffsetDateTime at, byte[] bytes) throws SQLException {
        try (ResultSet rows = select.executeQuery()) {
            rows.next();
            equal(rows.getInt(1), 7, "int");
            equal(rows.getArray(2).getArray(), new Integer[] {1, null, 3}, "array");
            equal(rows.getString(3), "{\"k\": [1, {\"ü\": null}]}", "json");
            equal(rows.getObject(4, OffsetDateTime.class).toInstant(), at.toInstant(), "timestamptz");
            equal(rows.getBytes(5), bytes, "bytea");
            equal(rows.getBigDecimal(6), new BigDecimal("12345.678900"), "numeric");
            rows.next();
            for (int column = 2; column <= 6; column++) {
                equal(rows.getObject(column), null, "null");
            }
        }
    }

    private static void batch(Connection conn) throws Exception {
        try (PreparedStatement insert = conn.prepareStatement("INSERT INTO drv_jdbc.t VALUES (?, 'batch')")) {
            for (int i = 5000; i < 5500; i++) {
                insert.setInt(1, i);
                insert.addBatch();
            }
            equal(Arrays.stream(insert.executeBatch()).sum(), 500, "batch");
            insert.setInt(1, 6000);
            insert.addBatch();
            insert.setInt(1, 5000);
            insert.addBatch();
            try {
                insert.executeBatch();
                throw new AssertionError("batch with a duplicate: no error");
            } catch (BatchUpdateException error) {
                equal(error.getSQLState(), "23505", "batch with a duplicate");
            }
        }
        equal(value(conn, "SELECT count(*) FROM drv_jdbc.t WHERE note = 'batch' AND id < 6000"), 500L, "after batches");
        ok("batch");
    }

    private static void cancel(Connection conn) throws Exception {
        try (Statement statement = conn.createStatement()) {
            statement.setQueryTimeout(1); // the driver sends a CancelRequest
            fails("57014", () -> statement.executeQuery("SELECT pg_sleep(30)"), "cancel");
        }
        execute(conn, "SET statement_timeout = '200ms'");
        fails("57014", () -> value(conn, "SELECT pg_sleep(30)"), "statement_timeout");
        equal(value(conn, "SHOW statement_timeout"), "200ms", "setting kept");
        execute(conn, "RESET statement_timeout");
        equal(value(conn, "SELECT 1"), 1, "after a cancel");
        ok("cancel");
    }

    private static void client(int number) throws SQLException {
        try (Connection conn = connect("ApplicationName=client" + number)) {
            for (int i = 0; i < 60; i++) {
                execute(conn, "INSERT INTO drv_jdbc.mine VALUES (" + number + ", " + i + ")");
                long own = (Long) value(conn, "SELECT count(*) FROM drv_jdbc.mine WHERE client = ?", number);
                equal(own, i + 1L, "own writes");
            }
            equal(value(conn, "SHOW application_name"), "client" + number, "own setting");
            for (int i = 0; i < 200; i++) {
                equal(value(conn, "SELECT ?::int + ?", i, number), i + number, "reads");
            }
        }
    }

    private static void concurrent() throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(CLIENTS);
        List<Future<?>> clients = new ArrayList<>();
        for (int i = 0; i < CLIENTS; i++) {
            int number = i;
            clients.add(threads.submit(() -> {
                client(number);
                return null;
            }));
        }
        threads.shutdown();
        for (Future<?> client : clients) {
            client.get(90, TimeUnit.SECONDS);
        }
        ok("concurrent");
    }

    private static void listen(Connection conn) throws Exception {
        try (Connection listener = connect("")) {
            execute(listener, "LISTEN drv_jdbc");
            for (int i = 0; i < 5; i++) {
                value(conn, "SELECT pg_notify('drv_jdbc', ?)", String.valueOf(i));
            }
            List<String> payloads = new ArrayList<>();
            for (int tries = 0; payloads.size() < 5 && tries < 100; tries++) {
                PGNotification[] events = listener.unwrap(PGConnection.class).getNotifications(200);
                for (PGNotification event : events == null ? new PGNotification[0] : events) {
                    payloads.add(event.getParameter());
                }
            }
            equal(payloads, List.of("0", "1", "2", "3", "4"), "notifications");
        }
        ok("listen and notify");
    }
}
