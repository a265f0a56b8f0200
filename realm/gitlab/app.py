"""Puts the routers and layers together into the public application of the stand-in."""

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.responses import JSONResponse

from realm.gitlab import api_jobs, api_oauth, api_oidc, api_projects, api_runner, git_http, web_oauth, web_sign_in
from realm.gitlab.errors import ApiError
from realm.gitlab.instance import Instance
from realm.gitlab.middleware import Misbehaviour, ProjectPaths, Recorder
from realm.gitlab.oauth_errors import OAuthError, error_response


def public_app(instance: Instance) -> FastAPI:
    """The application behind the TLS port."""
    app = FastAPI(openapi_url=None)

    @app.exception_handler(ApiError)
    def refused(_: Request, error: ApiError) -> JSONResponse:
        return JSONResponse({"message": error.message}, status_code=error.status, headers=error.headers)

    @app.exception_handler(OAuthError)
    def not_granted(_: Request, error: OAuthError) -> JSONResponse:
        return error_response(error)

    @app.exception_handler(RequestValidationError)
    def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return JSONResponse({"error": "; ".join(str(item["msg"]) for item in error.errors())}, status_code=400)

    for module in (api_oidc, api_oauth, web_sign_in, web_oauth, api_jobs, api_projects, api_runner, git_http):
        app.include_router(module.routes(instance))
    app.add_middleware(Misbehaviour, instance=instance)
    app.add_middleware(Recorder, instance=instance)
    app.add_middleware(ProjectPaths, instance=instance)
    return app
