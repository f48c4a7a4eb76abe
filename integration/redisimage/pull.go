package redisimage

import (
	"context"
	"fmt"
	"time"

	"github.com/cpuguy83/dockercfg"
	"github.com/distribution/reference"
	"github.com/moby/moby/api/pkg/authconfig"
	"github.com/moby/moby/api/types/registry"
	"github.com/moby/moby/client"
)

// A pull fails when the daemon reports nothing for pullStall, or when it takes longer than
// pullLimit: a machine without a network may otherwise wait for minutes.
const (
	pullStall = 20 * time.Second
	pullLimit = 3 * time.Minute
)

// pull has the daemon fetch the image, with the credentials that `docker login` has kept.
func pull(ctx context.Context, docker *client.Client, image string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, pullLimit, fmt.Errorf("not done after %v", pullLimit))
	defer cancel()
	ctx, give := context.WithCancelCause(ctx)
	defer give(nil)
	stalled := time.AfterFunc(pullStall, func() { give(fmt.Errorf("no progress for %v", pullStall)) })
	defer stalled.Stop()

	progress, err := docker.ImagePull(ctx, image, client.ImagePullOptions{RegistryAuth: login(image)})
	if err != nil {
		return whyEnded(ctx, err)
	}
	for message, err := range progress.JSONMessages(ctx) {
		if err != nil {
			return whyEnded(ctx, err)
		}
		if message.Error != nil {
			return message.Error
		}
		stalled.Reset(pullStall)
	}
	return whyEnded(ctx, nil)
}

// whyEnded returns the reason why ctx is done, if it is, and err otherwise.
func whyEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// login returns the credentials for the image's registry, or "" without a login.
func login(image string) string {
	name, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "" // the pull reports the error
	}
	host := dockercfg.ResolveRegistryHost(reference.Domain(name))
	user, secret, err := dockercfg.GetRegistryCredentials(host)
	if err != nil || secret == "" {
		return ""
	}
	auth := registry.AuthConfig{Username: user, Password: secret, ServerAddress: host}
	if user == "" {
		auth = registry.AuthConfig{IdentityToken: secret, ServerAddress: host}
	}
	encoded, err := authconfig.Encode(auth)
	if err != nil {
		return ""
	}
	return encoded
}
