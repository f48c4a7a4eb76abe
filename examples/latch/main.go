// Latch goes on when all parts of a job are done. Its arguments are URLs of Redis servers, or it starts three by itself.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"

	"github.com/alicebob/miniredis/v2"
	"github.com/quorumlock/quorumlock/redlock"
)

func main() {
	flag.Parse()
	urls := flag.Args()
	for i := 0; flag.NArg() == 0 && i < 3; i++ {
		server, err := miniredis.Run()
		check(err)
		defer server.Close()
		urls = append(urls, "redis://"+server.Addr())
	}
	client, err := redlock.Dial(urls...)
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
