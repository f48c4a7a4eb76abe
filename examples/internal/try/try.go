// Package try runs the examples like a user: with the URLs of three nodes as arguments.
package try

import (
	"fmt"
	"os"

	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
)

// Main runs an example's main with args, followed by the URLs of three nodes in this process.
func Main(main func(), args ...string) {
	os.Args = append([]string{"example"}, args...)
	for i := range 3 {
		server := embedded.Start(fmt.Sprintf("node-%d", i+1))
		defer server.Close()
		if err := server.Listen(); err != nil {
			fmt.Println(err)
			return
		}
		os.Args = append(os.Args, "redis://"+server.Redis.Addr())
	}
	main()
}
