// Latch goes on when all parts of a job are done. Its arguments are URLs of Redis servers.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/quorumlock/quorumlock/redlock"
)

func main() {
	client, err := redlock.Dial(os.Args[1:])
	check(err)
	ctx, parts := context.Background(), []string{"download", "convert", "verify"}
	latch := client.Latch(fmt.Sprintf("example:job:%d", os.Getpid()), len(parts)) // a name for each job
	for _, part := range parts {
		go func() { check(latch.Done(ctx, part)) }() // a part that is done twice counts once
	}
	check(latch.Wait(ctx))
	fmt.Println("all parts are done")
	check(client.Shutdown(ctx))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
