// Package fence checks fencing tokens at the resource: it refuses the write of a holder that was
// paused past the end of its lease and has not noticed.
//
// A lock cannot stop such a holder. The resource can, if it keeps the highest token that it has
// seen and refuses lower ones. (Kleppmann, "How to do distributed locking", 2016.) This package
// keeps the token beside the data:
//
//   - [SQL] in a table of its own, in Postgres, MySQL, MariaDB or SQLite, over database/sql;
//   - [TokenColumn] in a column of the rows that are written;
//   - [Redis] in a key beside the data, with [Guard] for a Lua script of your own;
//   - [Middleware] in front of an HTTP service, and [Transport] in its clients.
//
// # One call
//
// In SQL, RunInTx does all steps in the right order. It takes the token from the context of the
// lease:
//
//	err := quorumlock.Do(ctx, lock, func(ctx context.Context) error {
//		return table.RunInTx(ctx, db, "invoice:1042", func(tx *sql.Tx) error {
//			... // reads and writes with tx
//		}) // errors.Is(err, fence.ErrStale): a later holder has the lock
//	})
//
// # By hand: mark first, then check each write
//
// A holder that reads outside its transactions, or writes elsewhere, calls Mark at the start of its
// term. It begins to work when Mark has returned nil. From then on every earlier holder is refused,
// even before the new holder writes: the data that the new holder reads can no longer change.
//
//	token, _ := fence.FromContext(ctx) // ctx is the context of the lease
//	err := table.Mark(ctx, db, "invoice:1042", token)
//
// Each write then checks its token in the step that writes. In SQL that is your transaction:
//
//	tx, err := db.BeginTx(ctx, nil)
//	...
//	if err := table.Check(ctx, tx, "invoice:1042", token); err != nil {
//		return err
//	}
//	... // the writes
//	return tx.Commit()
//
// A write to a resource that was never marked is refused with [ErrMissing]. So a table that lost
// its marks takes no write until the present holder marks it again.
//
// # What is promised
//
// Once Mark has returned nil for a token, no write with a lower token takes effect on that
// resource, however long it was under way. That holds as long as the mark is kept: it must not be
// deleted, evicted, restored from an older backup, or lost in a failover that the data survives.
//
// One lock guards a resource. Tokens of different locks, and of different slots of a semaphore,
// cannot be compared.
package fence
