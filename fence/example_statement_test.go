package fence_test

import (
	"errors"
	"fmt"

	"github.com/quorumlock/quorumlock/fence"
)

// A driver of its own runs the text, and Judge interprets the result.
func ExampleStatement() {
	table, err := fence.NewSQL(fence.Postgres, "")
	exitOn(err)
	mark, err := table.MarkStatement("invoice:1042", 7)
	exitOn(err)
	check, err := table.CheckStatement("invoice:1042", 7)
	exitOn(err)
	fmt.Println(check.Text)
	fmt.Println(check.Args...)

	fmt.Println(mark.Judge(7)) // the driver returned 7
	fmt.Println(errors.Is(check.Judge(9), fence.ErrStale))
	fmt.Println(errors.Is(check.Judge(0), fence.ErrMissing)) // there was no row
	// Output:
	// UPDATE "quorumlock_fence" SET "token" = CASE WHEN "token" > 0 THEN GREATEST("token", $1) ELSE "token" END WHERE "resource" = $2 RETURNING COALESCE("token", 0)
	// 7 invoice:1042
	// <nil>
	// true
	// true
}

func ExampleTokenColumn_SetStatement() {
	accounts, err := fence.NewTokenColumn(fence.MySQL, fence.Columns{Table: "accounts", Key: "id", Token: "token"})
	exitOn(err)
	mark, err := accounts.MarkStatement(42, 7)
	exitOn(err)
	check, err := accounts.CheckStatement(42, 7)
	exitOn(err)
	set, err := accounts.SetStatement(42, 7, map[string]any{"state": "closed"})
	exitOn(err)
	for _, s := range []fence.Statement{mark, check, set} {
		fmt.Printf("%v: %d arguments\n", s, len(s.Args))
	}
	// Output:
	// Mark of "accounts 42": 2 arguments
	// Check of "accounts 42": 2 arguments
	// Set of "accounts 42": 4 arguments
}
