// Latch continues when all parts of a job are done. Its arguments are URLs of Redis servers.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync"

	"github.com/quorumlock/quorumlock/redlock"
)

func main() {
	client, err := redlock.Dial(os.Args[1:])
	check(err)
	ctx, parts := context.Background(), []string{"download", "convert", "verify"}
	// a new name per job
	latch := client.Latch(fmt.Sprintf("example:job:%d", os.Getpid()), len(parts))
	var workers sync.WaitGroup
	for _, part := range parts {
		workers.Go(func() { check(latch.Done(ctx, part)) }) // a part that is done twice counts once
	}
	check(latch.Wait(ctx))
	fmt.Println("all parts are done")
	workers.Wait() // a Done returns after the quorum that opened the latch
	check(client.Shutdown(ctx))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
