//go:build unix

package fencing

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	"modernc.org/sqlite"

	"github.com/quorumlock/quorumlock/fence"
	"github.com/quorumlock/quorumlock/internal/testkit/dbserver"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/testkit/require"
)

// database is one that the tests run on.
type database struct {
	name    string
	dialect fence.Dialect
	db      *sql.DB
	levels  []sql.IsolationLevel
	serial  bool             // a transaction excludes all others
	again   func(error) bool // a failed transaction is to be retried
	column  string           // the type of a column that numbers rows as they are inserted
}

var (
	databases []*database
	missing   = make(map[string]string) // the reasons why databases are missing, by their names
	redisAddr string
)

// insist is the variable that makes a missing database a failure.
const insist = "QUORUMLOCK_REQUIRE_DATABASES"

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	dir, err := os.MkdirTemp("", "quorumlock-fencing-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir) //nolint:errcheck // the process ends
	code := 0
	var stop []func() error
	for _, start := range starts {
		server, db, err := start.start(dir)
		if server != nil {
			stop = append(stop, server.Close)
		}
		if absent, ok := errors.AsType[*dbserver.MissingError](err); ok {
			missing[start.name] = absent.Error()
			continue
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, start.name+":", err)
			code = 1
			continue
		}
		databases = append(databases, db...)
	}
	if code == 0 {
		code = m.Run()
	}
	for _, d := range databases {
		_ = d.db.Close()
	}
	for _, end := range stop {
		if err := end(); err != nil {
			fmt.Fprintln(os.Stderr, "after the tests:", err)
			code = 1
		}
	}
	return code
}

// starts are the servers, of which some may be missing.
var starts = []struct {
	name  string
	start func(dir string) (*dbserver.Server, []*database, error)
}{
	{"SQLite", startSQLite},
	{"Postgres", startPostgres},
	{"MariaDB", startMariaDB},
	{"Redis", startRedis},
}

func startSQLite(dir string) (*dbserver.Server, []*database, error) {
	var all []*database
	for _, mode := range []string{"deferred", "immediate"} {
		db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, mode+".db")+
			"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_txlock="+mode)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, &database{
			name: "SQLite, " + mode, dialect: fence.SQLite, db: db, serial: mode == "immediate",
			levels: []sql.IsolationLevel{sql.LevelDefault},
			again: func(err error) bool {
				e, ok := errors.AsType[*sqlite.Error](err)
				return ok && e.Code()&0xff == 5 // SQLITE_BUSY
			},
			column: "INTEGER PRIMARY KEY",
		})
	}
	return nil, all, nil
}

func startPostgres(string) (*dbserver.Server, []*database, error) {
	s, err := dbserver.Postgres()
	if err != nil {
		return nil, nil, err
	}
	db, err := sql.Open("pgx", "postgres://fence@"+s.Addr+"/postgres?sslmode=disable")
	if err != nil {
		return s, nil, err
	}
	return s, []*database{{
		name: "Postgres", dialect: fence.Postgres, db: db,
		levels: []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable},
		again: func(err error) bool {
			e, ok := errors.AsType[*pgconn.PgError](err)
			return ok && (e.Code == "40001" || e.Code == "40P01")
		},
		column: "BIGSERIAL PRIMARY KEY",
	}}, s.Await(db.Ping)
}

func startMariaDB(string) (*dbserver.Server, []*database, error) {
	s, err := dbserver.MariaDB()
	if err != nil {
		return nil, nil, err
	}
	_ = mysql.SetLogger(log{})
	db, err := sql.Open("mysql", "root@tcp("+s.Addr+")/test")
	if err != nil {
		return s, nil, err
	}
	return s, []*database{{
		name: "MariaDB", dialect: fence.MySQL, db: db,
		levels: []sql.IsolationLevel{sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable},
		again: func(err error) bool {
			e, ok := errors.AsType[*mysql.MySQLError](err)
			return ok && (e.Number == 1213 || e.Number == 1205 || e.Number == 1020)
		},
		column: "BIGINT AUTO_INCREMENT PRIMARY KEY",
	}}, s.Await(db.Ping)
}

// log drops the messages of the driver while the server starts.
type log struct{}

func (log) Print(...any) {}

// startRedis starts a redis-server, or a node in this process where none is installed.
func startRedis(string) (*dbserver.Server, []*database, error) {
	s, err := dbserver.Redis()
	if _, absent := errors.AsType[*dbserver.MissingError](err); absent && os.Getenv(insist) != "1" {
		node := embedded.Start("redis")
		err = node.Listen()
		redisAddr = node.Redis.Addr()
		return nil, nil, err
	}
	if err != nil {
		return nil, nil, err
	}
	c := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer c.Close() //nolint:errcheck // it has only asked
	redisAddr = s.Addr
	return s, nil, s.Await(func() error { return c.Ping(context.Background()).Err() })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// each runs a test on each database.
func each(t *testing.T, test func(t *testing.T, d *database)) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) { test(t, d) })
	}
	for name, reason := range missing {
		t.Run(name, func(t *testing.T) { require.Skip(t, insist, reason) })
	}
}

// fences are those of a database: over a table, and over the rows of accounts.
type fences struct {
	table *fence.SQL
	rows  *fence.TokenColumn
}

// The ways to fence a write.
const (
	unfenced = iota
	byTable
	byRow
	bySet
	inTableTx // RunInTx marks and checks
	inRowTx
)

func (f fences) mark(ctx context.Context, db fence.DB, with int, id string, token uint64) error {
	switch with {
	case byTable:
		return f.table.Mark(ctx, db, id, token)
	case byRow, bySet:
		return f.rows.Mark(ctx, db, id, token)
	}
	return nil
}

func (f fences) check(ctx context.Context, tx *sql.Tx, with int, id string, token uint64) error {
	switch with {
	case byTable:
		return f.table.Check(ctx, tx, id, token)
	case byRow:
		return f.rows.Check(ctx, tx, id, token)
	}
	return nil
}

var migrated sync.Map // of each database, a function that makes its tables once

// migrate makes the tables of a database, with the package's migrations, and returns its fences.
func (d *database) migrate(t *testing.T) fences {
	t.Helper()
	once, _ := migrated.LoadOrStore(d, sync.OnceValues(func() (fences, error) {
		table, err := fence.NewSQL(d.dialect, "")
		if err != nil {
			return fences{}, err
		}
		rows, err := fence.NewTokenColumn(d.dialect, fence.Columns{Table: "accounts", Key: "id", Token: "fencing_token"})
		if err != nil {
			return fences{}, err
		}
		for _, statement := range []string{
			"CREATE TABLE accounts (id VARCHAR(64) NOT NULL PRIMARY KEY, balance BIGINT NOT NULL)",
			"CREATE TABLE journal (id " + d.column + ", account VARCHAR(64) NOT NULL, token BIGINT NOT NULL)",
			rows.Migration(), table.Migration(), table.Migration(), // which may be run again
			"INSERT INTO accounts (id, balance) VALUES ('elsewhere', 0)",
		} {
			if _, err := d.db.Exec(statement); err != nil {
				return fences{}, fmt.Errorf("%s: %w", statement, err)
			}
		}
		return fences{table, rows}, nil
	}))
	f, err := once.(func() (fences, error))()
	must(t, err)
	return f
}

// open makes an account with the balance 0.
func (d *database) open(t *testing.T, account string) {
	t.Helper()
	_, err := d.db.ExecContext(t.Context(), d.bind("INSERT INTO accounts (id, balance) VALUES (?, 0)"), account)
	must(t, err)
}

func (d *database) balance(t *testing.T, account string) (n int64) {
	t.Helper()
	must(t, d.db.QueryRowContext(t.Context(), d.bind("SELECT balance FROM accounts WHERE id = ?"), account).Scan(&n))
	return n
}

// bind returns a statement with the placeholders of the database.
func (d *database) bind(statement string) string {
	if d.dialect != fence.Postgres {
		return statement
	}
	var bound []byte
	n := 0
	for _, c := range []byte(statement) {
		if c != '?' {
			bound = append(bound, c)
			continue
		}
		n++
		bound = fmt.Appendf(bound, "$%d", n)
	}
	return string(bound)
}

// insist runs a transaction until it need not be run again.
func (d *database) insist(do func() error) error {
	for {
		err := do()
		if err == nil || !d.again(err) {
			return err
		}
	}
}
