// Package redisimage finds the image of the Redis servers for the container tests. If there is no
// other, it builds one from the redis-server of this machine.
package redisimage

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// Public is an image that anyone can pull.
const Public = "redis:8"

// Chooser chooses an image. All fields must be set but Named.
type Chooser struct {
	Docker *client.Client
	Named  string // the image that the user asks for; empty for any
	Public string // the image to try first if none is named
	// Reports an image that is pulled, built, or used in place of the public image.
	Say func(line string)
}

// Choose returns the name of an image that is present at the daemon. In this order, it is
//
//  1. the named one, present or pulled;
//  2. the public one, present or pulled;
//  3. one built from the redis-server of this machine, now or by an earlier call.
//
// If an image is named, no other is used: tests on another server would mislead.
func (c Chooser) Choose(ctx context.Context) (string, error) {
	if c.Named != "" {
		return c.Named, c.fetch(ctx, c.Named)
	}
	pulling := c.fetch(ctx, c.Public)
	if pulling == nil {
		return c.Public, nil
	}
	local, err := read()
	if err != nil {
		return "", fmt.Errorf("%w, and none can be built: %w", pulling, err)
	}
	name, did := local.name(), "using"
	present, err := c.present(ctx, name)
	if err == nil && !present {
		did = "built"
		err = local.load(ctx, c.Docker, name)
	}
	if err != nil {
		return "", fmt.Errorf("%w, and none can be built: %w", pulling, err)
	}
	c.Say(fmt.Sprintf("%v; %s %s from %s", pulling, did, name, local.origin))
	return name, nil
}

// fetch pulls the image unless it is present.
func (c Chooser) fetch(ctx context.Context, image string) error {
	present, err := c.present(ctx, image)
	if present || err != nil {
		return err
	}
	c.Say("pulling " + image)
	if err := pull(ctx, c.Docker, image); err != nil {
		return fmt.Errorf("%s cannot be pulled: %w", image, err)
	}
	return nil
}

func (c Chooser) present(ctx context.Context, image string) (bool, error) {
	_, err := c.Docker.ImageInspect(ctx, image)
	if errdefs.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}
