package certmagiclock_test

import (
	"context"
	"fmt"
	"os"

	"github.com/caddyserver/certmagic"

	certmagiclock "github.com/quorumlock/quorumlock/contrib/certmagic"
)

func ExampleNew() {
	client, stop := connect()
	defer stop()
	shared, err := os.MkdirTemp("", "certificates")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(shared) //nolint:errcheck // a temporary directory

	storage, err := certmagiclock.New(&certmagic.FileStorage{Path: shared}, client.Lockers("certmagic:"))
	if err != nil {
		panic(err)
	}
	certmagic.Default.Storage = storage // before the first certificate

	// CertMagic makes these calls around an order:
	ctx := context.Background()
	if err := certmagic.Default.Storage.Lock(ctx, "issue_cert_example.com"); err != nil {
		panic(err)
	}
	state, err := client.Inspect(ctx, "certmagic:issue_cert_example.com")
	fmt.Println("held:", state.State.Held(), err)
	fmt.Println(certmagic.Default.Storage.Unlock(ctx, "issue_cert_example.com"))
	// Output:
	// held: true <nil>
	// <nil>
}
