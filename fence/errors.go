package fence

import (
	"errors"
	"fmt"
	"math"

	"github.com/quorumlock/quorumlock/internal/errs"
)

var (
	// ErrStale is the error of a caller that no longer has the lock: the resource has seen a higher
	// token. Nothing was written, and a retry does not help. A *[StaleError] has the tokens.
	ErrStale = errors.New("quorumlock: fence: the fencing token is stale: a later holder has the lock")

	// ErrMissing is the error of a check without a token to compare with: the resource was not
	// marked, or the row does not exist. Nothing was written. Call Mark at the start of the term.
	ErrMissing = errors.New("quorumlock: fence: the resource has no fencing token: call Mark at the start of the term")
)

// StaleError is [ErrStale] with the refused token and the higher token that was seen.
type StaleError struct {
	Resource string
	Token    uint64 // the caller's
	Seen     uint64 // the highest that the resource has seen
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("quorumlock: fence: the fencing token %d of %q is stale: a later holder has %d", e.Token, e.Resource, e.Seen)
}

// Unwrap returns [ErrStale].
func (e *StaleError) Unwrap() error { return ErrStale }

// maxResource is the longest name of a resource, in bytes: the size of the table's key.
const maxResource = 255

func checkResource(resource string) error {
	switch n := len(resource); {
	case n == 0:
		return errs.Misuse("quorumlock: fence: the resource is empty: use a name, such as that of the lock")
	case n > maxResource:
		return errs.Misusef("quorumlock: fence: the resource %.40q has %d bytes: use at most %d", resource, n, maxResource)
	}
	return nil
}

// checkToken returns an error unless the token fits a BIGINT.
func checkToken(token uint64) error {
	switch {
	case token == 0:
		return errs.Misuse("quorumlock: fence: the fencing token is 0: use that of the lease, Lease.Token")
	case token > math.MaxInt64:
		return errs.Misusef("quorumlock: fence: the fencing token %d is too large: use that of the lease, Lease.Token", token)
	}
	return nil
}
