// The OpenID provider of tests and of `./dev up --oidc`: the example of a certified library, with two operators and payctl's client. It keeps everything in memory, and its passwords are public: loopback only.
//
// Usage: oidc-provider PORT. The issuer is http://127.0.0.1:PORT.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// The operators. A name is also the subject: the example's device flow makes it one.
var users = map[string]*storage.User{
	"carol": {ID: "carol", Username: "carol", Password: "demo-password-carol", FirstName: "Carol"},
	"dave":  {ID: "dave", Username: "dave", Password: "demo-password-dave", FirstName: "Dave"},
}

type userStore struct{}

func (userStore) ExampleClientID() string                     { return "service" }
func (userStore) GetUserByID(id string) *storage.User         { return users[id] }
func (userStore) GetUserByUsername(name string) *storage.User { return users[name] }

// The example's native client has no device flow.
type client struct{ op.Client }

func (c client) GrantTypes() []oidc.GrantType {
	return append(c.Client.GrantTypes(), oidc.GrantTypeDeviceCode)
}

type providerStorage struct{ *storage.Storage }

func (s providerStorage) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	found, err := s.Storage.GetClientByClientID(ctx, id)
	if err != nil {
		return nil, err
	}
	return client{found}, nil
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: oidc-provider PORT")
		os.Exit(2)
	}
	port, err := strconv.ParseUint(os.Args[1], 10, 16)
	if err != nil || port == 0 {
		fmt.Fprintf(os.Stderr, "oidc-provider: %q is no port; give one from 1 to 65535\n", os.Args[1])
		os.Exit(2)
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	// A port of 127.0.0.1 is payctl's own at each login (RFC 8252, section 7.3). The other client is not payctl's: its tokens open no session.
	storage.RegisterClients(
		storage.NativeClient("payctl", "http://127.0.0.1/callback"),
		storage.NativeClient("another", "http://127.0.0.1/callback"),
	)
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	handler := exampleop.SetupServer("http://"+address, providerStorage{storage.NewStorage(userStore{})}, logger, false)
	server := &http.Server{Addr: address, Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	if err := server.ListenAndServe(); err != nil {
		fmt.Fprintf(os.Stderr, "oidc-provider: %v\n", err)
		os.Exit(1)
	}
}
