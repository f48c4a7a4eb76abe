// Pool lets ten jobs use two connections, on a whole fleet. Its arguments are URLs of Redis
// servers.
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
	connections := []int{0, 0} // the number of uses of each
	semaphore := client.Semaphore("example:connections", len(connections))
	var jobs sync.WaitGroup
	for range 10 {
		jobs.Go(func() {
			lease, err := semaphore.Lock(context.Background())
			check(err)
			connections[lease.Slot()]++ // no other job has this slot
			check(lease.Unlock(context.Background()))
		})
	}
	jobs.Wait()
	fmt.Println(connections[0]+connections[1], "jobs are done")
	check(client.Shutdown(context.Background()))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
