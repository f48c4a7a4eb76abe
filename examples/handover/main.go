// Handover locks an order in one process, and ships it in another, under the same hold. Set
// QUORUMLOCK_NODES. The queue is a pipe: handover order 1042 | handover ship shipped.txt
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/redlock"
)

func main() {
	client, err := redlock.DialEnv()
	check(err)
	if len(os.Args) != 3 {
		log.Fatal("usage: handover order NUMBER, or handover ship FILE")
	}
	if ctx := context.Background(); os.Args[1] == "order" {
		check(order(ctx, client, os.Args[2]))
	} else {
		var number, text string
		for _, err = fmt.Scan(&number, &text); err == nil; _, err = fmt.Scan(&number, &text) {
			check(ship(ctx, client, number, text, os.Args[2]))
		}
		if !errors.Is(err, io.EOF) {
			log.Fatal(err)
		}
	}
	check(client.Shutdown(context.Background())) // a hold that is handed over goes on
}

func order(ctx context.Context, client *redlock.Client, number string) error {
	lease, err := client.Mutex("example:order:" + number).TryLock(ctx)
	if err != nil {
		return err
	}
	defer lease.Unlock(ctx)                     //nolint:errcheck // does nothing after Detach
	text, err := lease.Detach(ctx, time.Minute) // the longest time in the queue
	if err == nil {
		_, err = fmt.Println(number, text)
	}
	return err
}

func ship(ctx context.Context, client *redlock.Client, number, text, file string) error {
	lease, err := client.Attach(ctx, text)
	if errors.Is(err, quorumlock.ErrLost) { // delivered twice, too late, or after the death of a worker
		lease, err = client.Mutex("example:order:" + number).Lock(ctx)
	}
	if err != nil {
		return err // the queue delivers it again
	}
	defer lease.Unlock(ctx) //nolint:errcheck // the order is shipped, and the keys expire
	shipped, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if bytes.Contains(shipped, []byte(number+"\n")) {
		fmt.Println(number, "was shipped before")
		return nil
	}
	if err := context.Cause(lease.Context()); err != nil { // lost; a database would also check lease.Token()
		return err
	}
	fmt.Println(number, "is shipped")
	return os.WriteFile(file, append(shipped, number+"\n"...), 0o644)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
