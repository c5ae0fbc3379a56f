package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	generatedopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/openapi"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	// streamsMax is kube-apiserver's bound on the streams of an HTTP/2 connection for aggregated servers.
	streamsMax = 1000
	// drainMax is how long open watches may hold up the end of the plain listener.
	drainMax = 2 * time.Second
)

// server is kube's apiserver for custom resources behind one listener.
type server struct {
	kube     *genericapiserver.GenericAPIServer
	listener net.Listener
	tls      bool
}

func newServer(s settings, listener net.Listener, store *etcd) (*server, error) {
	// kube's library serves TLS only, and needs that for its own clients too.
	secure := listener
	if !s.tls {
		var err error
		if secure, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return nil, err
		}
	}
	o, err := serverOptions(s, secure, store)
	if err != nil {
		return nil, err
	}
	generic, err := genericConfig(o)
	if err != nil {
		return nil, err
	}
	storages := options.NewCRDRESTOptionsGetter(*o.RecommendedOptions.Etcd, generic.ResourceTransformers, generic.StorageObjectCountTracker)
	asked := http.NotFoundHandler()
	if !s.watchCache {
		known := withProgress(storages)
		storages, asked = known, known
	}
	config := &apiserver.Config{
		GenericConfig: generic,
		ExtraConfig: apiserver.ExtraConfig{
			CRDRESTOptionsGetter: storages,
			ServiceResolver:      webhook.NewDefaultServiceResolver(),
			AuthResolverWrapper:  webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, generic.LoopbackClientConfig, noop.NewTracerProvider()),
		},
	}
	completed := config.Complete()
	// The root /apis, which the aggregator serves in a whole kube-apiserver.
	completed.GenericConfig.EnableDiscovery = true
	extensions, err := completed.New(genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, err
	}
	kube := extensions.GenericAPIServer
	kube.Handler.NonGoRestfulMux.HandleFunc("/reference/compact", compaction(store))
	kube.Handler.NonGoRestfulMux.Handle("/reference/progress", asked)
	return &server{kube: kube, listener: listener, tls: s.tls}, nil
}

// serverOptions are kube's own options, at kube's defaults but for what stands here.
func serverOptions(s settings, listener net.Listener, store *etcd) (*options.CustomResourceDefinitionsServerOptions, error) {
	o := options.NewCustomResourceDefinitionsServerOptions(os.Stdout, os.Stderr)
	recommended := o.RecommendedOptions
	recommended.Etcd.StorageConfig.Transport.ServerList = []string{store.endpoint}
	recommended.Etcd.StorageConfig.CompactionInterval = s.compaction
	recommended.Etcd.StorageConfig.EventsHistoryWindow = s.historyWindow
	recommended.Etcd.EnableWatchCache = s.watchCache
	// No cluster around it: nobody to ask who somebody is, nothing that admits or queues.
	recommended.Authentication = nil
	recommended.Authorization = nil
	recommended.CoreAPI = nil
	recommended.Admission = nil
	recommended.Features.EnablePriorityAndFairness = false
	address := listener.Addr().(*net.TCPAddr)
	recommended.SecureServing.HTTP2MaxStreamsPerConnection = streamsMax
	recommended.SecureServing.Listener = listener
	recommended.SecureServing.BindAddress = address.IP
	recommended.SecureServing.BindPort = address.Port
	recommended.SecureServing.ServerCert.CertDirectory = filepath.Join(s.dataDir, "certificate")
	o.ServerRunOptions.AdvertiseAddress = address.IP
	if err := o.APIEnablement.RuntimeConfig.Set("api/all=true"); err != nil {
		return nil, err
	}
	return o, o.Complete()
}

// genericConfig is what Config of the options does, without a cluster to ask for services.
func genericConfig(o *options.CustomResourceDefinitionsServerOptions) (*genericapiserver.RecommendedConfig, error) {
	secure := o.RecommendedOptions.SecureServing
	if err := secure.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{secure.BindAddress}); err != nil {
		return nil, err
	}
	config := genericapiserver.NewRecommendedConfig(apiserver.Codecs)
	if err := o.ServerRunOptions.ApplyTo(&config.Config); err != nil {
		return nil, err
	}
	if err := o.RecommendedOptions.ApplyTo(config); err != nil {
		return nil, err
	}
	if err := o.APIEnablement.ApplyTo(&config.Config, apiserver.DefaultAPIResourceConfigSource(), apiserver.Scheme); err != nil {
		return nil, err
	}
	config.Authentication.Authenticator = anonymous.NewAuthenticator(nil)
	config.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	definitions := openapi.GetOpenAPIDefinitionsWithoutDisabledFeatures(generatedopenapi.GetOpenAPIDefinitions)
	namer := openapinamer.NewDefinitionNamer(apiserver.Scheme, scheme.Scheme)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(definitions, namer)
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, namer)
	return config, nil
}

// url is where clients find it.
func (s *server) url() string {
	if s.tls {
		return "https://" + s.listener.Addr().String()
	}
	return "http://" + s.listener.Addr().String()
}

// run serves until ctx ends and everything has drained.
func (s *server) run(ctx context.Context) error {
	prepared := s.kube.PrepareRun()
	if s.tls {
		return prepared.RunWithContext(ctx)
	}
	// The same handler chain behind HTTP/1.1 and h2c.
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	front := &http.Server{
		Handler:           s.kube.Handler,
		Protocols:         &protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: streamsMax},
		ReadHeaderTimeout: 32 * time.Second,
		IdleTimeout:       90 * time.Second,
		MaxHeaderBytes:    1 << 20,
	}
	go func() {
		if err := front.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintln(os.Stderr, "reference: the listener failed:", err)
		}
	}()
	err := prepared.RunWithContext(ctx)
	drain, cancel := context.WithTimeout(context.Background(), drainMax)
	defer cancel()
	if front.Shutdown(drain) != nil {
		_ = front.Close()
	}
	return err
}

// compaction serves POST /reference/compact, the one path that no kube-apiserver has: tests of expired
// versions need history to be forgotten now.
func compaction(store *etcd) http.HandlerFunc {
	return func(response http.ResponseWriter, request *http.Request) {
		if request.Method != http.MethodPost {
			http.Error(response, "POST only", http.StatusMethodNotAllowed)
			return
		}
		revision, err := store.compact(request.Context())
		if err != nil {
			http.Error(response, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(response, revision)
	}
}
