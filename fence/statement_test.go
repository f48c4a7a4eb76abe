package fence

import (
	"slices"
	"testing"
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
		t.Run(tt.dialect.String(), func(t *testing.T) {
			table, err := NewSQL(tt.dialect, "")
			if err != nil {
				t.Fatal(err)
			}
			rows, err := NewRows(tt.dialect, Columns{Table: "bank.accounts", Key: "id", Token: "fence"})
			if err != nil {
				t.Fatal(err)
			}
			mark := table.column.insert("x", 7)
			markRow := rows.column.mark("x", 7)
			check := table.column.check("x", 7, nil)
			set := rows.column.check("x", 7, []assignment{{tt.dialect.quote("balance"), 50}})
			for _, c := range []struct{ what, got, want string }{
				{"Mark", mark.text.String(), tt.mark}, {"Check", check.text.String(), tt.check},
				{"Rows.Mark", markRow.text.String(), tt.markRow}, {"Set", set.text.String(), tt.set},
				{"SQL.Migration", table.Migration(), tt.migration}, {"Rows.Migration", rows.Migration(), tt.alter},
			} {
				if c.got != c.want {
					t.Errorf("%s:\n%s\nwant\n%s", c.what, c.got, c.want)
				}
			}
			if want := []any{"x", int64(7), int64(7)}; !slices.Equal(mark.args, want) {
				t.Errorf("Mark has the arguments %v, want %v", mark.args, want)
			}
			for what, args := range map[string][]any{"Check": check.args, "Rows.Mark": markRow.args} {
				if want := []any{int64(7), "x"}; !slices.Equal(args, want) {
					t.Errorf("%s has the arguments %v, want %v", what, args, want)
				}
			}
			if want := []any{int64(7), 50, int64(7), "x"}; !slices.Equal(set.args, want) {
				t.Errorf("Set has the arguments %v, want %v", set.args, want)
			}
		})
	}
}
