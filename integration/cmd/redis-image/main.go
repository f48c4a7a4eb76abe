// Command redis-image builds a Redis image from the redis-server that is installed on this machine,
// without a base image, for machines that cannot pull one. Like the public image, its containers
// run `redis-server --port ...`.
//
//	go run ./integration/cmd/redis-image NAME:TAG
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/moby/moby/client"

	"github.com/quorumlock/quorumlock/integration/redisimage"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: redis-image NAME:TAG")
		os.Exit(2)
	}
	if err := build(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "redis-image:", err)
		os.Exit(1)
	}
}

func build(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	docker, err := client.New(client.FromEnv)
	if err != nil {
		return err
	}
	defer docker.Close() //nolint:errcheck // the process ends
	origin, err := redisimage.Build(ctx, docker, name)
	if err != nil {
		return err
	}
	fmt.Println("built", name, "from", origin)
	return nil
}
