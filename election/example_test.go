package election_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/quorumlock/quorumlock/election"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/redlock"
)

// connect replaces redlock.Dial(urls): five servers in the process.
func connect() (client *redlock.Client, stop func()) {
	client, _, stop = testkit.Connect(5)
	return client, stop
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func Example() {
	client, stop := connect()
	defer stop()
	ctx := context.Background()

	e := election.New(client.Mutex("myapp:leader"), "10.0.0.7:8080")
	err := e.Run(ctx, func(ctx context.Context) error {
		leader, err := e.Leader(ctx)
		fmt.Println("leader:", leader.Value, "sure:", leader.Sure)
		return err // the lock is free when Run returns
	})
	fmt.Println(err)

	_, err = e.Leader(ctx)
	fmt.Println(err)
	fmt.Println("work continues without leading:", e.Health(time.Minute) != nil)
	// Output:
	// leader: 10.0.0.7:8080 sure: true
	// <nil>
	// quorumlock: no leader
	// work continues without leading: false
}

func ExampleElection_Campaign() {
	client, stop := connect()
	defer stop()
	ctx := context.Background()

	e := election.New(client.Mutex("myapp:leader"), "starting")
	term, err := e.Campaign(ctx)
	exitOn(err)
	defer term.Resign(ctx) //nolint:errcheck // the keys are gone at their TTL

	exitOn(term.Proclaim(ctx, "10.0.0.7:8080"))
	mine, leading := e.Leading() // sends no request
	fmt.Println(leading, mine.Value())
	leader, err := e.Leader(ctx)
	exitOn(err)
	fmt.Println(leader.Value, leader.Token == term.Token())
	// Output:
	// true 10.0.0.7:8080
	// 10.0.0.7:8080 true
}

func ExampleElection_Observe() {
	client, stop := connect()
	defer stop()
	ctx := context.Background()
	e := election.New(client.Mutex("myapp:leader"), "10.0.0.7:8080")
	term, err := e.Campaign(ctx)
	exitOn(err)

	for leader, err := range e.Observe(ctx) {
		if errors.Is(err, election.ErrNoLeader) {
			fmt.Println("nobody leads")
			break
		}
		exitOn(err)
		fmt.Println("the leader is at", leader.Value)
		exitOn(term.Resign(ctx))
	}
	// Output:
	// the leader is at 10.0.0.7:8080
	// nobody leads
}

func ExampleTermOf() {
	client, stop := connect()
	defer stop()

	e := election.New(client.Mutex("myapp:leader"), "10.0.0.7:8080")
	err := e.Run(context.Background(), func(ctx context.Context) error {
		term, _ := election.TermOf(ctx)
		fmt.Println("send the token with every write:", term.Token() > 0)
		return nil
	})
	fmt.Println(err)
	// Output:
	// send the token with every write: true
	// <nil>
}
