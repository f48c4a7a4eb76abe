package fence

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strings"

	"github.com/quorumlock/quorumlock/internal/errs"
)

// Dialect is the kind of a database. The zero value is invalid.
type Dialect string

// The dialects.
const (
	Postgres Dialect = "Postgres" // PostgreSQL 9.5 or newer
	MySQL    Dialect = "MySQL"    // MySQL 5.7 or newer with InnoDB, and MariaDB 10.2 or newer
	SQLite   Dialect = "SQLite"   // SQLite 3.35 or newer
)

func (d Dialect) check() error {
	if d != Postgres && d != MySQL && d != SQLite {
		return errs.Misusef("quorumlock: fence: the Dialect %.80q is none: use Postgres, MySQL (for MariaDB, too) or SQLite", d)
	}
	return nil
}

// DB runs a statement. It is a *sql.DB, a *sql.Conn or a *sql.Tx, or a type that wraps one.
type DB interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// column is the column with the token of each key of a table. The names are quoted.
type column struct {
	dialect           Dialect
	table, key, token string
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_$]*$`)

func newColumn(d Dialect, table, key, token string) (column, error) {
	if err := d.check(); err != nil {
		return column{}, err
	}
	c := column{dialect: d}
	schema, name, ok := strings.Cut(table, ".")
	if !ok {
		schema, name = "", table
	}
	for _, n := range []struct {
		what, name string
		to         *string
	}{{"schema", schema, nil}, {"table", name, &c.table}, {"key column", key, &c.key}, {"token column", token, &c.token}} {
		if n.to == nil && !ok {
			continue
		}
		if !identifier.MatchString(n.name) {
			return column{}, errs.Misusef("quorumlock: fence: the %s %.80q: use letters, digits and underscores, as the database stores the name", n.what, n.name)
		}
		if n.to != nil {
			*n.to = d.quote(n.name)
		}
	}
	if ok {
		c.table = d.quote(schema) + "." + c.table
	}
	return c, nil
}

func (d Dialect) quote(name string) string {
	if d == MySQL {
		return "`" + name + "`"
	}
	return `"` + name + `"`
}

// statement builds a statement.
type statement struct {
	dialect Dialect
	text    strings.Builder
	args    []any
}

// add appends text, in which each ? stands for the next of args.
func (s *statement) add(text string, args ...any) {
	for _, a := range args {
		before, after, _ := strings.Cut(text, "?")
		s.args = append(s.args, a)
		s.text.WriteString(before)
		if s.dialect == Postgres {
			fmt.Fprintf(&s.text, "$%d", len(s.args))
		} else {
			s.text.WriteByte('?')
		}
		text = after
	}
	s.text.WriteString(text)
}

// raised sets the token column to the maximum of the stored token and the caller's. Only a mark
// sets a column without a token. The resulting token shows whether the caller is stale. The
// statement locks the row until the end of the transaction, even if it changes nothing.
func (s *statement) raised(stored string, token int64, mark bool) {
	before, greatest, after := "", "GREATEST", ""
	switch s.dialect {
	case SQLite:
		greatest = "max"
	case MySQL:
		// MySQL has no RETURNING. LAST_INSERT_ID(x) returns x, and makes the server report it with
		// the count of rows.
		before, after = "LAST_INSERT_ID(", ")"
	}
	if mark {
		s.add(before+greatest+"(COALESCE("+stored+", 0), ?)"+after, token)
		return
	}
	s.add(before+"CASE WHEN "+stored+" > 0 THEN "+greatest+"("+stored+", ?) ELSE "+stored+" END"+after, token)
}

// returning ends a statement that raised a token. A column without a token may be NULL.
func (s *statement) returning(token string) {
	if s.dialect != MySQL {
		s.add(" RETURNING COALESCE(" + token + ", 0)")
	}
}

// insert raises the token of a key, or inserts it.
func (c column) insert(key any, token int64) *statement {
	s := &statement{dialect: c.dialect}
	if c.dialect == MySQL {
		s.add("INSERT INTO "+c.table+" ("+c.key+", "+c.token+") VALUES (?, ?) ON DUPLICATE KEY UPDATE "+c.token+" = ", key, token)
		s.raised(c.token, token, true)
		return s
	}
	s.add("INSERT INTO "+c.table+" AS f ("+c.key+", "+c.token+") VALUES (?, ?) ON CONFLICT ("+c.key+") DO UPDATE SET "+c.token+" = ", key, token)
	s.raised("f."+c.token, token, true)
	s.returning(c.token)
	return s
}

// mark raises the token of an existing row.
func (c column) mark(key any, token int64) *statement { return c.update(key, token, true, nil) }

// check raises the token of a marked row, and sets other columns unless the caller is stale.
func (c column) check(key any, token int64, set []assignment) *statement {
	return c.update(key, token, false, set)
}

func (c column) update(key any, token int64, mark bool, set []assignment) *statement {
	s := &statement{dialect: c.dialect}
	s.add("UPDATE " + c.table + " SET ")
	for _, a := range set { // before the token: MySQL assigns from left to right
		s.add(a.column+" = CASE WHEN "+c.token+" BETWEEN 1 AND ? THEN ? ELSE "+a.column+" END, ", token, a.value)
	}
	s.add(c.token + " = ")
	s.raised(c.token, token, mark)
	s.add(" WHERE "+c.key+" = ?", key)
	s.returning(c.token)
	return s
}

type assignment struct {
	column string // quoted
	value  any
}

// done returns the statement. does describes it in errors.
func (s *statement) done(does, resource string, token uint64) Statement {
	return Statement{Text: s.text.String(), Args: s.args, dialect: s.dialect, does: does, resource: resource, token: token}
}
