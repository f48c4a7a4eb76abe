package lockcontainers_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/testcontainers/testcontainers-go"

	"github.com/quorumlock/quorumlock"
	lockcontainers "github.com/quorumlock/quorumlock/contrib/testcontainers"
	"github.com/quorumlock/quorumlock/redlock"
)

// testWork is a test of code that has its locks on real servers.
func testWork(t *testing.T, image string) {
	nodes, err := lockcontainers.Run(t.Context(), image) // such as redis:8
	testcontainers.CleanupContainer(t, nodes)
	if err != nil {
		t.Fatal(err)
	}
	urls, err := nodes.ConnectionStrings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client, err := redlock.Dial(urls)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // a node is stopped

	if err := nodes.Containers()[1].Stop(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	work := func(context.Context) error { return nil } // the code under test
	if err := quorumlock.Do(t.Context(), client.Mutex("invoice:1042"), work); err != nil {
		t.Errorf("while one of three nodes is down: %v", err)
	}
}

func ExampleRun() {
	// In a file of tests, name it TestWork: go test finds it.
	var _ func(t *testing.T, image string) = testWork
}

// A program that is no test terminates the nodes itself.
func ExampleContainer_Terminate() {
	ctx := context.Background()
	nodes, err := lockcontainers.Run(ctx, "redis:8")
	if err != nil {
		fmt.Println(err)
	}
	if nodes != nil {
		defer nodes.Terminate(ctx) //nolint:errcheck // the program ends
	}
}
