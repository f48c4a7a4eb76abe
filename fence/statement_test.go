package fence

import (
	"slices"
	"testing"

	"github.com/quorumlock/quorumlock/internal/testkit"
)

// The statements for the databases. Their effects are tested on real ones, in integration/fencing.
func TestStatements(t *testing.T) {
	for _, tt := range []struct {
		dialect          Dialect
		mark, check      string
		markRow, set     string
		migration, alter string
	}{
		{
			Postgres,
			`INSERT INTO "quorumlock_fence" AS f ("resource", "token") VALUES ($1, $2) ON CONFLICT ("resource") DO UPDATE SET "token" = GREATEST(COALESCE(f."token", 0), $3) RETURNING COALESCE("token", 0)`,
			`UPDATE "quorumlock_fence" SET "token" = CASE WHEN "token" > 0 THEN GREATEST("token", $1) ELSE "token" END WHERE "resource" = $2 RETURNING COALESCE("token", 0)`,
			`UPDATE "bank"."accounts" SET "fence" = GREATEST(COALESCE("fence", 0), $1) WHERE "id" = $2 RETURNING COALESCE("fence", 0)`,
			`UPDATE "bank"."accounts" SET "balance" = CASE WHEN "fence" BETWEEN 1 AND $1 THEN $2 ELSE "balance" END, "fence" = CASE WHEN "fence" > 0 THEN GREATEST("fence", $3) ELSE "fence" END WHERE "id" = $4 RETURNING COALESCE("fence", 0)`,
			`CREATE TABLE IF NOT EXISTS "quorumlock_fence" ("resource" TEXT NOT NULL PRIMARY KEY, "token" BIGINT NOT NULL)`,
			`ALTER TABLE "bank"."accounts" ADD COLUMN "fence" BIGINT NOT NULL DEFAULT 0`,
		},
		{
			MySQL,
			"INSERT INTO `quorumlock_fence` (`resource`, `token`) VALUES (?, ?) ON DUPLICATE KEY UPDATE `token` = LAST_INSERT_ID(GREATEST(COALESCE(`token`, 0), ?))",
			"UPDATE `quorumlock_fence` SET `token` = LAST_INSERT_ID(CASE WHEN `token` > 0 THEN GREATEST(`token`, ?) ELSE `token` END) WHERE `resource` = ?",
			"UPDATE `bank`.`accounts` SET `fence` = LAST_INSERT_ID(GREATEST(COALESCE(`fence`, 0), ?)) WHERE `id` = ?",
			"UPDATE `bank`.`accounts` SET `balance` = CASE WHEN `fence` BETWEEN 1 AND ? THEN ? ELSE `balance` END, `fence` = LAST_INSERT_ID(CASE WHEN `fence` > 0 THEN GREATEST(`fence`, ?) ELSE `fence` END) WHERE `id` = ?",
			"CREATE TABLE IF NOT EXISTS `quorumlock_fence` (`resource` VARBINARY(255) NOT NULL PRIMARY KEY, `token` BIGINT NOT NULL) ENGINE=InnoDB",
			"ALTER TABLE `bank`.`accounts` ADD COLUMN `fence` BIGINT NOT NULL DEFAULT 0",
		},
		{
			SQLite,
			`INSERT INTO "quorumlock_fence" AS f ("resource", "token") VALUES (?, ?) ON CONFLICT ("resource") DO UPDATE SET "token" = max(COALESCE(f."token", 0), ?) RETURNING COALESCE("token", 0)`,
			`UPDATE "quorumlock_fence" SET "token" = CASE WHEN "token" > 0 THEN max("token", ?) ELSE "token" END WHERE "resource" = ? RETURNING COALESCE("token", 0)`,
			`UPDATE "bank"."accounts" SET "fence" = max(COALESCE("fence", 0), ?) WHERE "id" = ? RETURNING COALESCE("fence", 0)`,
			`UPDATE "bank"."accounts" SET "balance" = CASE WHEN "fence" BETWEEN 1 AND ? THEN ? ELSE "balance" END, "fence" = CASE WHEN "fence" > 0 THEN max("fence", ?) ELSE "fence" END WHERE "id" = ? RETURNING COALESCE("fence", 0)`,
			`CREATE TABLE IF NOT EXISTS "quorumlock_fence" ("resource" TEXT NOT NULL PRIMARY KEY, "token" BIGINT NOT NULL)`,
			`ALTER TABLE "bank"."accounts" ADD COLUMN "fence" BIGINT NOT NULL DEFAULT 0`,
		},
	} {
		t.Run(string(tt.dialect), func(t *testing.T) {
			table, err := NewSQL(tt.dialect, "")
			testkit.Must(t, err, "NewSQL")
			rows, err := NewTokenColumn(tt.dialect, Columns{Table: "bank.accounts", Key: "id", Token: "fence"})
			testkit.Must(t, err, "NewTokenColumn")
			mark := table.column.insert("x", 7)
			markRow := rows.column.mark("x", 7)
			check := table.column.check("x", 7, nil)
			set := rows.column.check("x", 7, []assignment{{tt.dialect.quote("balance"), 50}})
			testkit.Equal(t, table.Migration(), tt.migration, "SQL.Migration")
			testkit.Equal(t, rows.Migration(), tt.alter, "TokenColumn.Migration")
			for what, c := range map[string]struct {
				got  *statement
				text string
				args []any
			}{
				"Mark": {mark, tt.mark, []any{"x", int64(7), int64(7)}}, "Check": {check, tt.check, []any{int64(7), "x"}},
				"TokenColumn.Mark": {markRow, tt.markRow, []any{int64(7), "x"}}, "Set": {set, tt.set, []any{int64(7), 50, int64(7), "x"}},
			} {
				testkit.Equal(t, c.got.text.String(), c.text, "%s", what)
				if !slices.Equal(c.got.args, c.args) {
					t.Errorf("%s has the arguments %v, want %v", what, c.got.args, c.args)
				}
			}
		})
	}
}
