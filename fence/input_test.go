package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/fence"
	"github.com/quorumlock/quorumlock/internal/testkit"
)

func TestBadArgumentsAreRefusedByName(t *testing.T) {
	ctx := t.Context()
	var none context.Context
	table, err := fence.NewSQL(fence.Postgres, "")
	testkit.Must(t, err, "NewSQL")
	rows, err := fence.NewTokenColumn(fence.Postgres, fence.Columns{Table: "x", Key: "id", Token: "token"})
	testkit.Must(t, err, "NewTokenColumn")
	keys, _ := newRedis(t)
	var memory fence.Memory
	enter := func(ctx context.Context, s fence.Store, resource string, token uint64) error {
		_, err := s.Enter(ctx, resource, token)
		return err
	}
	db, tx := new(sql.DB), new(sql.Tx) // nothing reaches them
	held, work := fence.NewContext(ctx, 1), func(*sql.Tx) error { return nil }
	long := strings.Repeat("x", 256)
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"SQL.Mark, ctx":                 {table.Mark(none, db, "x", 1), "context is nil"},
		"SQL.Mark, db":                  {table.Mark(ctx, nil, "x", 1), "the database is nil"},
		"SQL.Mark, typed nil":           {table.Mark(ctx, (*sql.DB)(nil), "x", 1), "the database is nil"},
		"SQL.Mark, resource":            {table.Mark(ctx, db, "", 1), "the resource is empty"},
		"SQL.Mark, long resource":       {table.Mark(ctx, db, long, 1), "256 bytes"},
		"SQL.Mark, token":               {table.Mark(ctx, db, "x", 0), "the fencing token is 0"},
		"SQL.Mark, great token":         {table.Mark(ctx, db, "x", math.MaxInt64+1), "too large"},
		"SQL.Check, ctx":                {table.Check(none, tx, "x", 1), "context is nil"},
		"SQL.Check, nil tx":             {table.Check(ctx, (*sql.Tx)(nil), "x", 1), "the database is nil"},
		"SQL.Check, token":              {table.Check(ctx, tx, "x", 0), "the fencing token is 0"},
		"SQL.Check, db":                 {table.Check(ctx, db, "x", 1), "a *sql.DB, which is no transaction"},
		"SQL.Check, conn":               {table.Check(ctx, new(sql.Conn), "x", 1), "a *sql.Conn, which is no transaction"},
		"SQL.Check, disguise":           {table.Check(ctx, pool{db}, "x", 1), "use the *sql.Tx"},
		"SQL.Check, pointer":            {table.Check(ctx, &pool{db}, "x", 1), "use the *sql.Tx"},
		"SQL.RunInTx, ctx":              {table.RunInTx(none, db, "x", work), "context is nil"},
		"SQL.RunInTx, db":               {table.RunInTx(held, nil, "x", work), "the database is nil"},
		"SQL.RunInTx, function":         {table.RunInTx(held, db, "x", nil), "the function is nil"},
		"SQL.RunInTx, token":            {table.RunInTx(ctx, db, "x", work), "the context has no fencing token"},
		"SQL.RunInTx, resource":         {table.RunInTx(held, db, "", work), "the resource is empty"},
		"TokenColumn.RunInTx, token":    {rows.RunInTx(ctx, db, 1, work), "the context has no fencing token"},
		"TokenColumn.Check, disguise":   {rows.Check(ctx, pool{db}, 1, 1), "use the *sql.Tx"},
		"TokenColumn.Check, nil tx":     {rows.Check(ctx, (*pool)(nil), 1, 1), "the database is nil"},
		"TokenColumn.Mark, db":          {rows.Mark(ctx, nil, 1, 1), "the database is nil"},
		"TokenColumn.Check, token":      {rows.Check(ctx, tx, 1, 0), "the fencing token is 0"},
		"TokenColumn.Set, nothing":      {rows.Set(ctx, db, 1, 1, nil), "no columns"},
		"TokenColumn.Set, column":       {rows.Set(ctx, db, 1, 1, map[string]any{"a b": 1}), `the column "a b"`},
		"TokenColumn.Set, token column": {rows.Set(ctx, db, 1, 1, map[string]any{"token": 1}), "leave it out"},
		"TokenColumn.Set, key column":   {rows.Set(ctx, db, 1, 1, map[string]any{"id": 1}), "leave it out"},
		"Redis.Mark, ctx":               {keys.Mark(none, "x", 1), "context is nil"},
		"Redis.Mark, resource":          {keys.Mark(ctx, "", 1), "the resource is empty"},
		"Redis.Mark, token":             {keys.Mark(ctx, "x", 0), "the fencing token is 0"},
		"Redis.Set, TTL":                {keys.Set(ctx, "x", 1, "v", -1), "the TTL is -1ns"},
		"Redis.Set, short TTL":          {keys.Set(ctx, "x", 1, "v", time.Microsecond), "the TTL is 1µs"},
		"Redis.Run, nil":                {keys.Run(ctx, nil, "x", 1, nil).Err(), "the script is nil"},
		"Redis.Run, zero":               {keys.Run(ctx, new(fence.Script), "x", 1, nil).Err(), "the script is nil"},
		"Memory.Enter, ctx":             {enter(none, &memory, "x", 1), "context is nil"},
		"Memory.Enter, token":           {enter(ctx, &memory, "x", 0), "the fencing token is 0"},
		"Memory.Enter, resource":        {enter(ctx, &memory, "", 1), "the resource is empty"},
		"New, no dialect":               {testkit.Err(fence.NewSQL("", "")), `Dialect ""`},
		"New, table":                    {testkit.Err(fence.NewSQL(fence.Postgres, `fence"; DROP TABLE x`)), "the table"},
		"New, schema":                   {testkit.Err(fence.NewSQL(fence.Postgres, "a b.fence")), "the schema"},
		"New, empty schema":             {testkit.Err(fence.NewSQL(fence.Postgres, ".fence")), "the schema"},
		"New, no table":                 {testkit.Err(fence.NewTokenColumn(fence.MySQL, fence.Columns{Key: "id", Token: "t"})), "the table"},
		"New, no key":                   {testkit.Err(fence.NewTokenColumn(fence.MySQL, fence.Columns{Table: "x", Token: "t"})), "the key column"},
		"New, no token":                 {testkit.Err(fence.NewTokenColumn(fence.MySQL, fence.Columns{Table: "x", Key: "id"})), "the token column"},
		"New, no Redis":                 {testkit.Err(fence.NewRedis(nil, 0)), "the Redis client"},
		"New, nil Redis":                {testkit.Err(fence.NewRedis((*redis.Client)(nil), 0)), "the Redis client"},
		"New, pipeline":                 {testkit.Err(fence.NewRedis(new(redis.Pipeline), 0)), "a *redis.Pipeline, which only queues calls"},
		"New, in disguise":              {testkit.Err(fence.NewRedis(struct{ redis.Pipeliner }{}, 0)), "which only queues calls"},
		"New, keep too short":           {testkit.Err(fence.NewRedis(new(redis.Client), 1)), "keep is 1ns"},
	} {
		if tt.err == nil || !strings.Contains(tt.err.Error(), tt.want) {
			t.Errorf("%s: %v, want an error about %q", name, tt.err, tt.want)
			continue
		}
		if !errors.Is(tt.err, quorumlock.ErrMisuse) || !strings.HasPrefix(tt.err.Error(), "quorumlock: ") || strings.ContainsAny(tt.err.Error(), "\r\n") {
			t.Errorf("%s: %v, want ErrMisuse on one line with the prefix", name, tt.err)
		}
		if strings.HasSuffix(name, "ctx") && !errors.Is(tt.err, quorumlock.ErrNilContext) {
			t.Errorf("%s: %v, want ErrNilContext", name, tt.err)
		}
	}
}

// pool wraps a *sql.DB in another type, like packages for tracing and mapping.
type pool struct{ *sql.DB }
